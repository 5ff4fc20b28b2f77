use std::fs::File;
use std::io;
use std::net::Ipv4Addr;

use super::namespace::tool;
use crate::numbers::reserve;

/// 256 addresses of 198.18.0.0/15, which is for tests of networks, that no other network of this
/// machine has.
#[derive(Debug)]
pub(super) struct Subnet {
    number: u16,
    /// Locked until this value or this process ends.
    _reserved: File,
}

impl Subnet {
    pub(super) fn reserve() -> io::Result<Self> {
        let (number, _reserved) = reserve("polylock-subnets-0", 0..SUBNETS, is_free)?;
        Ok(Self { number, _reserved })
    }

    /// The address of the test process.
    pub(super) fn outside(&self) -> Ipv4Addr {
        address(self.number, 1)
    }

    /// The address of a host.
    pub(super) fn host(&self, place: usize) -> io::Result<Ipv4Addr> {
        let own = u8::try_from(place).ok().filter(|place| *place < HOSTS);
        let own = own.ok_or_else(|| io::Error::other("a network has no more than 200 hosts"))?;
        Ok(address(self.number, FIRST + own))
    }
}

/// The kernel may be about to remove an interface of a process that was killed, and a process
/// with another temporary directory may have reserved it.
fn is_free(subnet: u16) -> io::Result<bool> {
    let subnet = format!("{}/24", address(subnet, 0));
    let routes = tool(None, &["ip", "-4", "route", "show", "root", &subnet], "")?;
    Ok(routes.is_empty())
}

fn address(subnet: u16, own: u8) -> Ipv4Addr {
    let [high, low] = subnet.to_be_bytes();
    Ipv4Addr::new(198, 18 + high, low, own)
}

const FIRST: u8 = 10;
const HOSTS: u8 = 200;
const SUBNETS: u16 = 512;
