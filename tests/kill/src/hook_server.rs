//! The hook of the agent in some stories, in its own process. It records every question before it answers.
//!
//! Each answer with actions also stores its question under a key. The state comes back with every later question, so a
//! question whose key is in it shows that a recorded answer is asked for again.

use std::fs::OpenOptions;
use std::io::{self, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};

use machine::id::{CallId, RunId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::incoming_post::{self, IncomingPost};
use crate::stories::{GATE, Gate};

/// One question, as the hook received it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedQuestion {
    /// The process that asked.
    pub process: u32,
    pub run: RunId,
    pub call: Option<CallId>,
    /// What was asked: the phase, the step and the call, with everything that makes it another question about the call.
    pub key: String,
    /// Whether the answer has actions and must therefore be recorded.
    pub has_actions: bool,
    /// Whether the asking process knew that the answer was recorded.
    pub is_recorded: bool,
}

/// The file with a world's questions.
#[must_use]
pub fn in_folder(folder: &Path) -> PathBuf {
    folder.join("questions")
}

/// The questions of one world, in the order in which they were asked.
pub fn read(file: &Path) -> io::Result<Vec<AskedQuestion>> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let (whole, _) = text.rsplit_once('\n').unwrap_or_default();
    whole.lines().map(|line| serde_json::from_str(line).map_err(io::Error::from)).collect()
}

/// The hook's process. It prints its port, and exits when its parent does.
pub fn serve() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("listening {}", listener.local_addr()?.port());
    std::thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    for stream in listener.incoming() {
        let stream = stream?;
        // A node killed while it asks has asked nothing, so the error is ignored.
        std::thread::spawn(move || answer_all(&stream));
    }
    Ok(())
}

fn answer_all(stream: &TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    while let Some(IncomingPost { caller, body, .. }) = IncomingPost::read(&mut reader)? {
        let question: Question = serde_json::from_slice(&body)?;
        let actions = question.actions();
        let asked = AskedQuestion {
            process: caller.process,
            run: question.run_id.clone(),
            call: question.call.as_ref().map(|call| call.call_id.clone()),
            key: question.key(),
            has_actions: !actions.is_empty(),
            is_recorded: question.state.run.get(question.key()).is_some(),
        };
        let mut line = serde_json::to_vec(&asked)?;
        line.push(b'\n');
        let file = in_folder(&caller.folder);
        OpenOptions::new().create(true).append(true).open(file)?.write_all(&line)?;
        incoming_post::respond(stream, "200 OK", &json!({"actions": actions}).to_string())?;
    }
    Ok(())
}

#[derive(Deserialize)]
struct Question {
    phase: String,
    run_id: RunId,
    step: u32,
    call: Option<QuestionedCall>,
    arguments: Option<Value>,
    revisit: Option<Value>,
    state: QuestionState,
}

#[derive(Deserialize)]
struct QuestionedCall {
    call_id: CallId,
}

#[derive(Deserialize)]
struct QuestionState {
    run: Value,
}

impl Question {
    fn key(&self) -> String {
        let call = self.call.as_ref().map_or("-", |call| call.call_id.as_str());
        let revisit = self.revisit.as_ref().map(Value::to_string).unwrap_or_default();
        format!("{} {} {call} {revisit}", self.phase, self.step)
    }

    /// The same actions whenever the same question is asked.
    fn actions(&self) -> Vec<Value> {
        let mut actions = match self.phase.as_str() {
            "before_inference" => vec![json!({"type": "add_instruction", "text": "Be brief."})],
            "before_tool_execute" => match self.gate() {
                Some(Gate::Silent) => return Vec::new(),
                Some(Gate::Block) => vec![json!({"type": "block", "reason": "not today"})],
                Some(Gate::Suspend) => vec![json!({"type": "suspend", "question": "Are you sure?"})],
                Some(Gate::Supply) => vec![json!({"type": "set_result", "result": {"supplied": true}})],
                None => Vec::new(),
            },
            _ => Vec::new(),
        };
        actions.push(json!({"type": "set_state", "key": self.key(), "value": true}));
        actions
    }

    fn gate(&self) -> Option<Gate> {
        let gate = self.arguments.as_ref()?.get(GATE)?;
        serde_json::from_value(gate.clone()).ok()
    }
}
