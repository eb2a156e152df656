//! The engine on a journal and storage in memory, driven request by request.

mod compression;
mod conditions;
mod durability;
mod expiry;
mod forks;
mod homes;
mod listing;
mod live;
mod memory;
mod pieces;
mod reads;
mod refusals;
mod retention;
mod support;
mod units;
