//! Waits for real I/O in real time while the clock of a simulated world is stopped.
//!
//! A paused clock jumps ahead as soon as every task of its runtime waits, and waiting for a socket counts as waiting.
//! So everything that needs a socket lives on a separate runtime, and the world's thread blocks until the answer has
//! come. For the world the call took no time, and nothing else happened meanwhile.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tokio::runtime::{Builder, Handle};

/// The runtime with a real clock, one per process.
pub(crate) fn real_time() -> Result<Handle, String> {
    static HANDLE: OnceLock<Result<Handle, String>> = OnceLock::new();
    HANDLE.get_or_init(start).clone()
}

fn start() -> Result<Handle, String> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|why| format!("no runtime: {why}"))?;
    let handle = runtime.handle().clone();
    let forever = move || runtime.block_on(std::future::pending::<()>());
    let thread = thread::Builder::new().name("real time".into()).spawn(forever);
    thread.map(|_| handle).map_err(|why| format!("no thread: {why}"))
}

/// Waits for a future that lives on the runtime with the real clock.
pub(crate) fn wait_for<T>(runtime: &Handle, answer: impl Future<Output = T>) -> T {
    let _entered = runtime.enter();
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    // The world polls all of this as one turn of a task. Constrained, it would use up the task's budget permanently.
    let mut answer = pin!(tokio::task::unconstrained(answer));
    loop {
        match answer.as_mut().poll(&mut context) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => thread::park(),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
