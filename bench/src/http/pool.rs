//! The streams that are open all the time. Each follows a run and, when that run has ended, the next one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::failure::Failure;
use crate::pace::milliseconds;

use super::server::{Site, TENANTS};
use super::stream::{Ended, Followed, ShownEvent, is_terminal};
use super::wire::Client;

/// Maximum number of streams that are being opened at the same time.
const OPENING_MAX: usize = 64;

/// State shared by the streams and the tasks that post and decide.
pub(crate) struct Pool {
    clients: Vec<Client>,
    /// When the measurement began.
    begin: OnceLock<Instant>,
    /// Number of streams that received something, for each second of the measurement.
    pub(crate) told: Vec<AtomicU64>,
    pub(crate) open_count: AtomicU64,
    doors: Semaphore,
    /// One permit for each stream that has been opened.
    opened: Semaphore,
    held: Mutex<VecDeque<Held>>,
    running: Mutex<BTreeMap<usize, String>>,
    stopping: AtomicBool,
    pub(crate) decided_ms: Mutex<Vec<f64>>,
}

/// A call that waits for approval.
struct Held {
    number: usize,
    approval: String,
    decided_at: Arc<Mutex<Option<Instant>>>,
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    pub(crate) fn new(site: &Site, second_count: usize) -> Self {
        Self {
            clients: (0..TENANTS.len()).map(|tenant| Client::new(site.clone(), tenant)).collect(),
            begin: OnceLock::new(),
            told: (0..second_count).map(|_| AtomicU64::new(0)).collect(),
            open_count: AtomicU64::new(0),
            doors: Semaphore::new(OPENING_MAX),
            opened: Semaphore::new(0),
            held: Mutex::default(),
            running: Mutex::default(),
            stopping: AtomicBool::new(false),
            decided_ms: Mutex::default(),
        }
    }

    pub(crate) fn client(&self, number: usize) -> &Client {
        &self.clients[number % self.clients.len()]
    }

    pub(crate) async fn all_open(&self, count: usize) -> Result<(), Failure> {
        self.opened.acquire_many(u32::try_from(count)?).await?.forget();
        Ok(())
    }

    pub(crate) fn begin(&self) -> Instant {
        *self.begin.get_or_init(Instant::now)
    }

    /// Posts `says` to start a run, follows it until it ends, and repeats until the pool stops.
    pub(crate) async fn follow(self: Arc<Self>, number: usize, says: &str) -> Result<Vec<Ended>, Failure> {
        let (mut ended, mut last_second) = (Vec::new(), None);
        while !self.stopping.load(Ordering::SeqCst) {
            let door = self.doors.acquire().await?;
            let client = self.client(number);
            let run = post(client, says).await?;
            let mut followed = Followed::open(client, &run).await?;
            drop(door);
            self.open_count.fetch_add(1, Ordering::Relaxed);
            locked(&self.running).insert(number, run.clone());
            if ended.is_empty() {
                self.opened.add_permits(1);
            }
            // The task that stops the pool may have listed the runs before this one was added.
            if self.stopping.load(Ordering::SeqCst) {
                self.interrupt(number, &run).await?;
            }
            let decided_at = Arc::default();
            loop {
                let told = followed.next().await?;
                self.note(&mut last_second);
                let ShownEvent::Event(kind) = told else { continue };
                match kind.as_str() {
                    "tool.approval_requested" => self.hold(number, &followed.payload()?, &decided_at)?,
                    "tool.execution_started" => {
                        let at: Option<Instant> = locked(&decided_at).take();
                        locked(&self.decided_ms).extend(at.map(|at| milliseconds(at.elapsed())));
                    }
                    kind if is_terminal(kind) => break,
                    _ => {}
                }
            }
            self.open_count.fetch_sub(1, Ordering::Relaxed);
            ended.push(followed.end().await?);
        }
        Ok(ended)
    }

    fn note(&self, last_second: &mut Option<usize>) {
        let second = self.begin.get().map(|begin| begin.elapsed().as_secs() as usize);
        if second != *last_second {
            *last_second = second;
            if let Some(told) = second.and_then(|second| self.told.get(second)) {
                told.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn hold(
        &self,
        number: usize,
        payload: &Value,
        decided_at: &Arc<Mutex<Option<Instant>>>,
    ) -> Result<(), Failure> {
        let approval = text(payload, "approval_id")?;
        locked(&self.held).push_back(Held { number, approval, decided_at: decided_at.clone() });
        Ok(())
    }

    /// Approves the call that has waited longest, if there is one.
    pub(crate) async fn decide_one(&self) -> Result<(), Failure> {
        let Some(held) = locked(&self.held).pop_front() else { return Ok(()) };
        *locked(&held.decided_at) = Some(Instant::now());
        self.client(held.number).post(&format!("/v1/approvals/{}/approve", held.approval), None).await?;
        Ok(())
    }

    pub(crate) async fn stop(&self) -> Result<(), Failure> {
        self.stopping.store(true, Ordering::SeqCst);
        let running = locked(&self.running).clone();
        for (number, run) in running {
            self.interrupt(number, &run).await?;
        }
        Ok(())
    }

    async fn interrupt(&self, number: usize, run: &str) -> Result<(), Failure> {
        self.client(number).post(&format!("/v1/runs/{run}/interrupt"), None).await?;
        Ok(())
    }
}

/// Posts a message to a new thread. Returns the id of its run.
pub(crate) async fn post(client: &Client, says: &str) -> Result<String, Failure> {
    let path = new_thread(client).await?;
    let posted = client.post(&path, Some(&message(says))).await?;
    text(&posted, "run_id")
}

/// Creates a thread. Returns the path to which its messages are posted.
pub(crate) async fn new_thread(client: &Client) -> Result<String, Failure> {
    let thread = client.post("/v1/threads", Some(&json!({}))).await?;
    Ok(format!("/v1/threads/{}/messages", text(&thread, "id")?))
}

pub(crate) fn message(says: &str) -> Value {
    json!({"agent": "clerk", "text": says})
}

pub(crate) fn text(value: &Value, name: &str) -> Result<String, Failure> {
    let text = value[name].as_str().map(str::to_owned);
    text.ok_or_else(|| Failure::new(format!("there is no {name} in {value}")))
}
