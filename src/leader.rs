//! Who mirrors and deletes: election on a Lease.

pub mod election;
