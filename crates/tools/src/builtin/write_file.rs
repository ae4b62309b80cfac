//! Writes a file completely or not at all, and only inside one folder.
//!
//! A path that leads out of the folder is refused, whether by its components or through a symbolic link. This protects
//! against a hostile model. It does not protect against a process that replaces folders with links in the meantime, so
//! no other process should write to the folder.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use engine::tool::{FunctionTool, Outcome, Tool, ToolAnswer, ToolDefinition, ToolRequest};
use serde_json::json;

#[derive(serde::Deserialize)]
struct WriteFileArguments {
    path: String,
    text: String,
}

pub(super) fn tool(folder: PathBuf) -> Arc<dyn Tool> {
    let definition = ToolDefinition::new(
        "write_file",
        "Writes a text file. A file that is there already is replaced as a whole.",
    )
    .parameters(json!({
        "type": "object",
        "required": ["path", "text"],
        "additionalProperties": false,
        "properties": {
            "path": {
                "type": "string",
                "minLength": 1,
                "description": "Where, relative to the folder of this tool, without `..`. Missing folders are created."
            },
            "text": {"type": "string", "description": "What the file contains afterwards."}
        }
    }));
    let folder: Arc<Path> = Arc::from(folder);
    Arc::new(FunctionTool::new(definition, move |request| call(folder.clone(), request)))
}

async fn call(folder: Arc<Path>, request: ToolRequest) -> Outcome {
    if request.cancelled.is_cancelled() {
        return Outcome::NotSent { why: "cancelled before it began".to_owned(), retry_after_ms: None };
    }
    let WriteFileArguments { path, text } = match super::arguments(&request) {
        Ok(arguments) => arguments,
        Err(message) => return Outcome::Answered(ToolAnswer::Error { message }),
    };
    let draft_name = draft_name(&request.idempotency_key, request.attempt);
    let bytes = text.len();
    let shown = path.clone();
    let written =
        tokio::task::spawn_blocking(move || write(&folder, &path, &draft_name, text.as_bytes())).await;
    match written {
        Ok(Ok(())) => {
            let value = Arc::new(json!({"path": shown, "bytes": bytes}));
            Outcome::Answered(ToolAnswer::Success { value, warning: None })
        }
        Ok(Err(WriteError::Untouched(message))) => Outcome::Answered(ToolAnswer::Error { message }),
        Ok(Err(WriteError::InDoubt(why))) => Outcome::Unknown { why, retry_after_ms: None },
        Err(lost) => Outcome::Unknown { why: format!("the write was lost: {lost}"), retry_after_ms: None },
    }
}

/// Why it is not certain that the file was written.
#[derive(Debug)]
enum WriteError {
    /// The file is unchanged.
    Untouched(String),
    /// The file is replaced, but a power failure may undo that.
    InDoubt(String),
}

/// Each attempt has its own draft, because an abandoned attempt may still be writing.
fn draft_name(idempotency_key: &str, attempt: u32) -> String {
    let key: String = idempotency_key.chars().filter(char::is_ascii_alphanumeric).take(64).collect();
    format!(".holdpoint-{key}-{attempt}.draft")
}

fn write(folder: &Path, path: &str, draft_name: &str, bytes: &[u8]) -> Result<(), WriteError> {
    let (parent, target) = locate(folder, path)?;
    let draft = parent.join(draft_name);
    let drafted = create_draft(&draft).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    let replaced = drafted
        .map_err(untouched(path, "write a draft"))
        .and_then(|()| fs::rename(&draft, &target).map_err(untouched(path, "put the draft in place")));
    if let Err(fault) = replaced {
        // Only the fault matters. A leftover draft is replaced by the next one of the same name.
        let _ = fs::remove_file(&draft);
        return Err(fault);
    }
    sync_folder(&parent).map_err(|error| {
        WriteError::InDoubt(format!("`{path}` is written, but its folder cannot be synced: {error}"))
    })
}

fn untouched(path: &str, what: &str) -> impl Fn(io::Error) -> WriteError {
    move |error| WriteError::Untouched(format!("cannot {what} for `{path}`: {error}"))
}

/// Never opens an existing file, which may be a link to another location.
fn create_draft(draft: &Path) -> io::Result<File> {
    let create = || OpenOptions::new().write(true).create_new(true).open(draft);
    match create() {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            fs::remove_file(draft)?;
            create()
        }
        created => created,
    }
}

/// The file's folder and the file. Creates every folder on the path; neither result contains a link.
fn locate(folder: &Path, path: &str) -> Result<(PathBuf, PathBuf), WriteError> {
    let (folders, name) = split_path(path).map_err(WriteError::Untouched)?;
    let root = create_root(folder).map_err(untouched(path, "create the tool's folder"))?;
    let mut here = root.clone();
    for folder in folders {
        let next = here.join(folder);
        match fs::create_dir(&next) {
            Ok(()) => sync_folder(&here).map_err(untouched(path, "sync a folder"))?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(untouched(path, "create a folder")(error)),
        }
        here = follow(&root, &next, path)?;
        if !here.is_dir() {
            let what = format!("`{path}` leads through {}, which is not a folder", folder.display());
            return Err(WriteError::Untouched(what));
        }
    }
    let mut target = here.join(name);
    match fs::symlink_metadata(&target) {
        Ok(_) => target = follow(&root, &target, path)?,
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(untouched(path, "look at what is there")(error)),
    }
    match target.parent() {
        Some(parent) if !target.is_dir() => Ok((parent.to_owned(), target)),
        Some(_) | None => Err(WriteError::Untouched(format!("`{path}` is a folder; name a file in it"))),
    }
}

/// The tool's folder with links resolved. Created if it is missing, and synced so that it survives a power failure.
fn create_root(folder: &Path) -> io::Result<PathBuf> {
    let missing =
        folder.ancestors().take_while(|part| !part.as_os_str().is_empty() && !part.exists()).count();
    fs::create_dir_all(folder)?;
    let root = folder.canonicalize()?;
    for parent in root.ancestors().skip(1).take(missing) {
        sync_folder(parent)?;
    }
    Ok(root)
}

/// The real path with all links resolved. A dangling link is refused, because its target could later be outside the
/// root.
fn follow(root: &Path, there: &Path, path: &str) -> Result<PathBuf, WriteError> {
    let real = there.canonicalize().map_err(|error| {
        WriteError::Untouched(format!("`{path}` leads through a link that cannot be followed: {error}"))
    })?;
    if real.starts_with(root) {
        return Ok(real);
    }
    Err(WriteError::Untouched(format!(
        "`{path}` leads out of the tool's folder through a link; use a path without it"
    )))
}

/// The folders of a path and its file name, if no component leads out.
fn split_path(path: &str) -> Result<(Vec<&OsStr>, &OsStr), String> {
    let mut names = Vec::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => names.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                return Err(format!("`{path}` contains `..`; use a path inside the tool's folder"));
            }
            Component::RootDir | Component::Prefix(_) => {
                return Err(format!("`{path}` is absolute; use a path relative to the tool's folder"));
            }
        }
    }
    match names.pop() {
        Some(name) if !path.ends_with('/') => Ok((names, name)),
        Some(_) | None => Err(format!("`{path}` names no file; use a relative path like notes/today.txt")),
    }
}

/// A name survives a power failure once its folder is synced. Only on Unix can a folder be opened for that.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}
