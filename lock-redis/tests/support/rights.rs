//! What a user of the server needs.
