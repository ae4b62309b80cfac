//! A TCP proxy that cuts a connection when a chosen word passes, before the request or after it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What happens to a connection once a client has sent the word on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The request does not arrive, and the connection is closed.
    Before,
    /// The request arrives and is executed; its answer does not arrive, and the connection is closed.
    After,
    /// Nothing from the server arrives any more; the connection stays open.
    Silence,
}

#[derive(Clone, Debug)]
struct Trap {
    word: Vec<u8>,
    cut: Cut,
}

pub(crate) struct Proxy {
    pub(crate) port: u16,
    trap: Arc<Mutex<Option<Trap>>>,
    swallows: Arc<AtomicBool>,
}

impl Proxy {
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let own = listener.local_addr().expect("the port has a number").port();
        let trap: Arc<Mutex<Option<Trap>>> = Arc::default();
        let swallows: Arc<AtomicBool> = Arc::default();
        let (traps, swallowed) = (trap.clone(), swallows.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await {
                    carry(client, server, traps.clone(), swallowed.clone());
                }
            }
        });
        Self { port: own, trap, swallows }
    }

    /// Triggers once, on the first connection on which this word is sent.
    pub(crate) fn set(&self, word: &str, cut: Cut) {
        *self.trap.lock().unwrap() = Some(Trap { word: word.into(), cut });
    }

    /// Drops all notifications from now on, like a transaction-pooling proxy.
    pub(crate) fn swallow_notifications(&self) {
        self.swallows.store(true, Ordering::SeqCst);
    }

    pub(crate) fn has_triggered(&self) -> bool {
        self.trap.lock().unwrap().is_none()
    }
}

fn carry(client: TcpStream, server: TcpStream, trap: Arc<Mutex<Option<Trap>>>, swallows: Arc<AtomicBool>) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (triggered, trigger_seen) = watch::channel(None);
    tokio::spawn(questions(from_client, to_server, trap, triggered));
    tokio::spawn(answers(from_server, to_client, trigger_seen, swallows));
}

async fn questions(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    trap: Arc<Mutex<Option<Trap>>>,
    triggered: watch::Sender<Option<Cut>>,
) {
    let mut buffer = vec![0; 1 << 20];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let cut = trigger(&trap, &buffer[..count]);
        if cut.is_some() {
            triggered.send_replace(cut);
        }
        if cut == Some(Cut::Before) || to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

async fn answers(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    trigger_seen: watch::Receiver<Option<Cut>>,
    swallows: Arc<AtomicBool>,
) {
    let mut messages = Messages::default();
    let mut buffer = vec![0; 1 << 20];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        match *trigger_seen.borrow() {
            None => {}
            Some(Cut::Before | Cut::After) => return,
            Some(Cut::Silence) => continue,
        }
        let forwarded = messages.take_whole(&buffer[..count], swallows.load(Ordering::SeqCst));
        if to.write_all(&forwarded).await.is_err() {
            return;
        }
    }
}

/// Splits the server's bytes into protocol messages.
#[derive(Default)]
struct Messages {
    has_begun: bool,
    rest: Vec<u8>,
}

impl Messages {
    const NOTIFICATION: u8 = b'A';

    /// All whole messages so far, without notifications if they are swallowed.
    fn take_whole(&mut self, said: &[u8], swallows: bool) -> Vec<u8> {
        self.rest.extend_from_slice(said);
        let mut forwarded = Vec::new();
        // The server answers the request for encryption with one letter.
        if !std::mem::replace(&mut self.has_begun, true) && self.rest.first() == Some(&b'N') {
            forwarded.push(self.rest.remove(0));
        }
        while let Some(length) = self.rest.get(1..5) {
            let length = u32::from_be_bytes(length.try_into().expect("four bytes")) as usize + 1;
            if self.rest.len() < length {
                break;
            }
            let message: Vec<u8> = self.rest.drain(..length).collect();
            if !swallows || message[0] != Self::NOTIFICATION {
                forwarded.extend(message);
            }
        }
        forwarded
    }
}

fn trigger(trap: &Mutex<Option<Trap>>, said: &[u8]) -> Option<Cut> {
    let mut trap = trap.lock().unwrap();
    let Trap { word, cut } = trap.clone()?;
    if !said.windows(word.len()).any(|part| part == word) {
        return None;
    }
    *trap = None;
    Some(cut)
}
