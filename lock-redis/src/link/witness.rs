use std::future::pending;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// Calls `over` when `runtime` shuts down, or when the task is aborted.
pub(super) fn witness(runtime: &Handle, over: impl FnOnce() + Send + 'static) -> AbortHandle {
    let over = AtEnd(Some(over));
    let task = async move {
        let _over = over;
        pending::<()>().await;
    };
    runtime.spawn(task).abort_handle()
}

struct AtEnd<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        if let Some(over) = self.0.take() {
            over();
        }
    }
}
