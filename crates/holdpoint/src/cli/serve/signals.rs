//! Operating system signals for the server.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::problem::{Exit, Problem};

/// From creation on, these signals are received here and no longer end the process by themselves.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignalAction {
    /// SIGTERM or Ctrl-C.
    Stop,
    /// SIGHUP.
    Reload,
}

impl Signals {
    pub(super) fn listen() -> Result<Self, Problem> {
        let register = || -> std::io::Result<Self> {
            Ok(Self {
                terminate: signal(SignalKind::terminate())?,
                interrupt: signal(SignalKind::interrupt())?,
                hang_up: signal(SignalKind::hangup())?,
            })
        };
        register().map_err(|why| {
            let cause = format!("signals cannot be listened to: {why}");
            Problem::new("NO_SIGNALS", cause, "See which limits this process has.", Exit::Other)
        })
    }

    pub(super) async fn next(&mut self) -> SignalAction {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => SignalAction::Stop,
            _ = self.interrupt.recv() => SignalAction::Stop,
            _ = self.hang_up.recv() => SignalAction::Reload,
        }
    }

    pub(super) async fn wait_for_stop(&mut self) {
        while self.next().await != SignalAction::Stop {}
    }
}
