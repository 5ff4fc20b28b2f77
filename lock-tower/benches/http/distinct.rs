use std::time::Duration;

use super::load::{Keys, rates};
use super::routes::{bare, connect, locked};
use super::{median, runtime};

/// 64 connections, a key of its own for each request.
pub(crate) fn run() {
    let rates = runtime().block_on(async {
        let apps = vec![bare(), locked(connect("memory:").await)];
        rates(apps, 64, Keys::Distinct, 9, Duration::from_secs(1)).await
    });
    let ratios: Vec<_> = rates[0].iter().zip(&rates[1]).map(|(a, b)| b / a).collect();
    println!("distinct keys, 64 connections, requests/s");
    println!("  the route alone      {:>8.0}", median(rates[0].clone()));
    println!("  the layer on memory  {:>8.0}", median(rates[1].clone()));
    println!("  ratio                {:>8.2}", median(ratios));
}
