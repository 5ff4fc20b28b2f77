//! Requests that are sent again and answered once.
