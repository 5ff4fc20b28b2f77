use zookeeper_client::{Acl, Acls, Permission};

use crate::config::Access;

/// The access control list of the nodes that this client creates.
pub(crate) fn acls(access: Access) -> Acls<'static> {
    match access {
        Access::Creator => Acls::creator_all(),
        Access::CreatorAndReaders => Acls::new(&CREATOR_AND_READERS),
        Access::Everybody => Acls::anyone_all(),
    }
}

static CREATOR_AND_READERS: [Acl; 2] = [
    Acl::new_const(Permission::ALL, "auth", ""),
    Acl::new_const(Permission::READ, "world", "anyone"),
];
