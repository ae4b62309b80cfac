//! Callbacks: the address and the token with which a tool that answered "later" reports the result of one attempt.
//!
//! The token is a keyed hash of the address. The key is derived from a secret of the operator, or else is kept in the
//! store. So nothing is stored per callback: every process on the store can verify a token before it looks anything up,
//! and even before the attempt has returned. A second or late report is refused because the run has moved on, not
//! because a token was revoked.

use std::fmt;
use std::sync::{Mutex, PoisonError, RwLock};

use machine::id::{CallId, Digest, RunId, SuspensionId, ToolName};
use machine::suspension::Held;
use machine::{Control, Timestamp};
use subtle::{Choice, ConstantTimeEq};
use uuid::Uuid;

use crate::live::lock;
use crate::store::{Store, StoreError, Tenant};

/// What a tool receives with an attempt. It is valid only for this attempt, and counts once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callback {
    pub url: String,
    pub token: CallbackToken,
}

/// Its holder may report. It is shown only to the tool.
#[derive(Clone, PartialEq, Eq)]
pub struct CallbackToken(String);

impl CallbackToken {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for CallbackToken {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for CallbackToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallbackToken(…)")
    }
}

/// The attempt that a report is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedAttempt {
    pub tenant: Tenant,
    pub run: RunId,
    pub call: CallId,
    pub attempt: u32,
}

/// The state of an attempt when a report about it arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptState {
    /// The tool answered "later", and this suspension has held the call since.
    Held { suspension: SuspensionId, tool: ToolName },
    /// It is unknown whether the attempt took effect; the party that made it knows.
    InDoubt { step: u32 },
    /// The attempt has not returned yet, so the tool's answer is not known.
    InFlight,
    /// No report is expected: it was answered, another attempt was made, or the call or its run is over.
    NotAwaited,
}

impl ReportedAttempt {
    #[must_use]
    pub fn attempt_state(&self, control: &Control) -> AttemptState {
        let Some(call) = control.call(&self.call) else { return AttemptState::NotAwaited };
        if call.running_attempt() == Some(self.attempt) {
            return AttemptState::InFlight;
        }
        let Some(open) = call.suspension() else { return AttemptState::NotAwaited };
        match open.held {
            // If a hook holds the call, the attempts before it were answered.
            Held::External if open.asker_count == 0 && call.attempts == self.attempt => {
                AttemptState::Held { suspension: open.id.clone(), tool: call.tool.clone() }
            }
            Held::InDoubt { attempt } if attempt == self.attempt => AttemptState::InDoubt { step: call.step },
            Held::External
            | Held::InDoubt { .. }
            | Held::Approval { .. }
            | Held::ClientTool
            | Held::Question
            | Held::ChildRun { .. } => AttemptState::NotAwaited,
        }
    }

    /// One path segment of letters and digits: call ids come from the model, and may contain anything.
    fn path(&self) -> String {
        let names = (self.tenant.as_str(), self.run.as_str(), self.call.as_str(), self.attempt);
        let text = serde_json::json!(names).to_string();
        text.bytes().map(|byte| format!("{byte:02x}")).collect()
    }

    fn from_path(path: &str) -> Option<Self> {
        let bytes = decode_hex(path)?;
        let (tenant, run, call, attempt): (String, String, String, u32) =
            serde_json::from_slice(&bytes).ok()?;
        Some(Self {
            tenant: Tenant::from(tenant.as_str()),
            run: RunId::from(run),
            call: CallId::from(call),
            attempt,
        })
    }
}

const KEY_ID_CHARS: usize = 8;

/// Keys from outside the store. A copy of the store reveals nothing about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallbackSecrets {
    /// Signs new tokens.
    pub signing: CallbackKey,
    /// Tokens signed with it are still accepted: the key before a rotation, or the next one.
    pub also_accepted: Option<CallbackKey>,
}

/// The keys that a store keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredCallbackKeys {
    pub current: CallbackKey,
    /// The key before the last rotation, until it is removed. Tokens signed with it are still accepted.
    pub previous: Option<CallbackKey>,
}

impl StoredCallbackKeys {
    /// A key that was never rotated.
    #[must_use]
    pub const fn first(current: CallbackKey) -> Self {
        Self { current, previous: None }
    }
}

/// The result of rotating the stored key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRotation {
    Rotated,
    /// The store has no key. Nothing was changed.
    NoKey,
    /// The previous key is still kept: another rotation would invalidate its callbacks. Nothing was changed.
    PreviousIsKept,
}

/// Which of the stored keys to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeysToRemove {
    All,
    Previous,
}

/// Signs tokens. Its holder can report about any attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CallbackKey([u8; 32]);

impl CallbackKey {
    pub const BYTES: usize = 32;

    #[must_use]
    pub fn generate() -> Self {
        let drawn = [Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4()];
        Self(Digest::sha256(drawn.map(Uuid::into_bytes).as_flattened()).0)
    }

    /// Derives the key from a secret, which is kept outside the store. The secret has to be long and random.
    #[must_use]
    pub fn from_secret(secret: &str) -> Self {
        Self(Self(Digest::sha256(secret.as_bytes()).0).sign("holdpoint callback key").0)
    }

    /// Names the key in its tokens without revealing anything about it.
    fn id(&self) -> String {
        let mut id = self.sign("holdpoint callback key id").to_string();
        id.truncate(KEY_ID_CHARS);
        id
    }

    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    fn sign(&self, text: &str) -> Digest {
        Digest::hmac_sha256(&self.0, text.as_bytes())
    }
}

impl From<[u8; CallbackKey::BYTES]> for CallbackKey {
    fn from(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for CallbackKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallbackKey(…)")
    }
}

/// A running process reloads the stored keys at most this often.
const RELOAD_INTERVAL_MS: u64 = 1_000;

/// The keys of this process.
#[derive(Clone, Copy)]
enum Keys {
    FromSecrets { secrets: CallbackSecrets, stored: Option<StoredCallbackKeys> },
    FromStore(StoredCallbackKeys),
}

impl Keys {
    /// Signs new tokens.
    const fn signing(&self) -> CallbackKey {
        match self {
            Self::FromSecrets { secrets, .. } => secrets.signing,
            Self::FromStore(stored) => stored.current,
        }
    }

    fn stored(&self) -> impl Iterator<Item = CallbackKey> + use<> {
        let stored = match self {
            Self::FromSecrets { stored, .. } => *stored,
            Self::FromStore(stored) => Some(*stored),
        };
        stored.into_iter().flat_map(|stored| [Some(stored.current), stored.previous]).flatten()
    }

    /// Tokens of all these keys are accepted.
    fn accepted(&self) -> impl Iterator<Item = CallbackKey> + use<> {
        let secrets = match self {
            Self::FromSecrets { secrets, .. } => [Some(secrets.signing), secrets.also_accepted],
            Self::FromStore(_) => [None, None],
        };
        secrets.into_iter().flatten().chain(self.stored())
    }

    /// A removed key is accepted until the process is restarted, unless the store has another one.
    fn with_stored(self, found: Option<StoredCallbackKeys>) -> Self {
        match (self, found) {
            (Self::FromSecrets { secrets, stored }, found) => {
                Self::FromSecrets { secrets, stored: found.or(stored) }
            }
            (Self::FromStore(_), Some(found)) => Self::FromStore(found),
            (Self::FromStore(stored), None) => Self::FromStore(stored),
        }
    }
}

/// Issues callbacks, and verifies their tokens.
pub(crate) struct Callbacks {
    /// The base URL; the path of each callback follows it.
    at: String,
    keys: RwLock<Keys>,
    /// When the stored keys were last reloaded.
    reloaded_at: Mutex<Option<Timestamp>>,
}

impl Callbacks {
    /// With secrets no key is generated. A key that the store has is accepted until the operator removes it.
    pub(crate) async fn open(
        at: &str,
        secrets: Option<&CallbackSecrets>,
        store: &dyn Store,
    ) -> Result<Self, StoreError> {
        let keys = match secrets {
            Some(secrets) => {
                Keys::FromSecrets { secrets: *secrets, stored: store.callback_keys(None).await? }
            }
            None => {
                let drawn = CallbackKey::generate();
                let stored = store.callback_keys(Some(drawn)).await?;
                Keys::FromStore(stored.unwrap_or(StoredCallbackKeys::first(drawn)))
            }
        };
        Ok(Self::new(at, keys))
    }

    fn new(at: &str, keys: Keys) -> Self {
        let at = at.trim_end_matches('/').to_owned();
        Self { at, keys: RwLock::new(keys), reloaded_at: Mutex::default() }
    }

    fn keys(&self) -> Keys {
        *self.keys.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn issue(&self, about: &ReportedAttempt) -> Callback {
        let path = about.path();
        let token = CallbackToken(token(&self.keys().signing(), &path));
        Callback { url: format!("{}/{path}", self.at), token }
    }

    /// None if the token does not belong to the path. Takes the same time for every guess.
    fn verify(&self, path: &str, guess: &str) -> Option<ReportedAttempt> {
        let keys = self.keys();
        // The earliest tokens of a store did not name their key.
        let unnamed = keys.stored().map(|key| key.sign(path).to_string());
        let good = keys.accepted().map(|key| token(&key, path)).chain(unnamed);
        let is_good =
            good.fold(Choice::from(0), |so_far, good| so_far | good.as_bytes().ct_eq(guess.as_bytes()));
        if bool::from(is_good) { ReportedAttempt::from_path(path) } else { None }
    }

    /// None if the token does not belong to the path. Another process may have rotated the key of a shared store, so a
    /// token that names an unknown key makes this process reload the stored keys. A guess can trigger no other lookup,
    /// and this one at most once a second.
    pub(crate) async fn verify_or_reload(
        &self,
        path: &str,
        guess: &str,
        store: &dyn Store,
        now: Timestamp,
    ) -> Option<ReportedAttempt> {
        let verified = self.verify(path, guess);
        if verified.is_some() || !self.reload_for(guess, store, now).await {
            return verified;
        }
        self.verify(path, guess)
    }

    /// Signs a text for another purpose than callbacks. A signature for one purpose is valid for no other.
    pub(crate) fn sign(&self, purpose: &str, text: &str) -> String {
        signature(&self.keys().signing(), purpose, text)
    }

    /// Whether this process or another one on the store signed the text for this purpose. Takes the same time for every
    /// guess.
    pub(crate) async fn verify_signature(
        &self,
        (purpose, text): (&str, &str),
        guess: &str,
        store: &dyn Store,
        now: Timestamp,
    ) -> bool {
        self.is_signature(purpose, text, guess)
            || (self.reload_for(guess, store, now).await && self.is_signature(purpose, text, guess))
    }

    fn is_signature(&self, purpose: &str, text: &str, guess: &str) -> bool {
        let good = self.keys().accepted().map(|key| signature(&key, purpose, text));
        let is_good =
            good.fold(Choice::from(0), |so_far, good| so_far | good.as_bytes().ct_eq(guess.as_bytes()));
        bool::from(is_good)
    }

    /// Reads the keys of a shared store again, if the guess names a key that is not known and the last reading is long
    /// enough ago. Returns whether it did.
    async fn reload_for(&self, guess: &str, store: &dyn Store, now: Timestamp) -> bool {
        if !store.is_shared() || !self.names_unknown_key(guess) || !self.may_reload(now) {
            return false;
        }
        match store.callback_keys(None).await {
            Ok(found) => {
                let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
                *keys = keys.with_stored(found);
            }
            Err(refused) => {
                tracing::warn!(%refused, "the stored callback keys cannot be read; a token is refused");
            }
        }
        true
    }

    fn names_unknown_key(&self, guess: &str) -> bool {
        let is_unknown = |id: &str| self.keys().accepted().all(|key| key.id() != id);
        guess.split_once('.').is_some_and(|(id, _)| id.len() == KEY_ID_CHARS && is_unknown(id))
    }

    fn may_reload(&self, now: Timestamp) -> bool {
        let mut last = lock(&self.reloaded_at);
        if last.is_some_and(|last| now.0.saturating_sub(last.0) < RELOAD_INTERVAL_MS) {
            return false;
        }
        *last = Some(now);
        true
    }
}

/// Names the key that signed it.
fn token(key: &CallbackKey, path: &str) -> String {
    format!("{}.{}", key.id(), key.sign(path))
}

/// Names the key that signed it. The key of each purpose is derived from the callback key, so that a signature is never
/// the token of a callback.
fn signature(key: &CallbackKey, purpose: &str, text: &str) -> String {
    let derived = CallbackKey(key.sign(&format!("holdpoint key for {purpose}")).0);
    format!("{}.{}", key.id(), derived.sign(text))
}

fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(tenant: &str, run: &str, call: &str, attempt: u32) -> ReportedAttempt {
        ReportedAttempt { tenant: tenant.into(), run: run.into(), call: call.into(), attempt }
    }

    fn split(callback: &Callback) -> (String, String) {
        let (at, path) = callback.url.rsplit_once('/').expect("it has a path");
        assert_eq!(at, "https://runs.example.org/v1/callbacks");
        (path.to_owned(), callback.token.as_str().to_owned())
    }

    const AT: &str = "https://runs.example.org/v1/callbacks";

    fn callbacks(key: u8) -> Callbacks {
        Callbacks::new(AT, Keys::FromStore(StoredCallbackKeys::first(CallbackKey::from([key; 32]))))
    }

    fn with_secrets(signing: &str, also_accepted: Option<&str>, stored: Option<u8>) -> Callbacks {
        let stored = stored.map(|key| StoredCallbackKeys::first(CallbackKey::from([key; 32])));
        let secrets = CallbackSecrets {
            signing: CallbackKey::from_secret(signing),
            also_accepted: also_accepted.map(CallbackKey::from_secret),
        };
        Callbacks::new(AT, Keys::FromSecrets { secrets, stored })
    }

    fn rotated(current: u8, previous: u8) -> Callbacks {
        let (current, previous) = (CallbackKey::from([current; 32]), CallbackKey::from([previous; 32]));
        Callbacks::new(AT, Keys::FromStore(StoredCallbackKeys { current, previous: Some(previous) }))
    }

    #[test]
    fn after_a_rotation_the_new_key_signs_and_both_are_accepted() {
        let about = about("acme", "run_1", "call_0", 1);
        let (path, before) = split(&callbacks(7).issue(&about));
        let unnamed = CallbackKey::from([7; 32]).sign(&path).to_string();
        let (_, after) = split(&rotated(8, 7).issue(&about));
        assert_eq!(split(&callbacks(8).issue(&about)), (path.clone(), after.clone()));
        for token in [&before, &unnamed, &after] {
            assert_eq!(rotated(8, 7).verify(&path, token), Some(about.clone()), "{token}");
        }
        for token in [&before, &unnamed] {
            assert_eq!(callbacks(8).verify(&path, token), None, "the previous key is removed: {token}");
        }
    }

    #[test]
    fn a_token_names_its_key_and_counts_until_the_key_is_gone() {
        let about = about("acme", "run_1", "call_0", 1);
        let (path, of_store) = split(&callbacks(7).issue(&about));
        let (_, of_first) = split(&with_secrets("first", None, Some(7)).issue(&about));
        let (_, of_second) = split(&with_secrets("second", None, None).issue(&about));
        let id = |token: &str| token.split_once('.').expect("it names its key").0.to_owned();
        assert_ne!(id(&of_first), id(&of_second));
        assert_ne!(id(&of_store), id(&of_first));
        let unnamed = CallbackKey::from([7; 32]).sign(&path).to_string();
        let takes = |callbacks: &Callbacks, token: &str| callbacks.verify(&path, token).is_some();
        let rotating = with_secrets("second", Some("first"), Some(7));
        for token in [&of_store, &of_first, &of_second, &unnamed] {
            assert!(takes(&rotating, token), "{token}");
        }
        let rotated = with_secrets("second", None, None);
        assert!(takes(&rotated, &of_second));
        for token in [&of_store, &of_first, &unnamed] {
            assert!(!takes(&rotated, token), "{token}");
        }
        let unnamed = CallbackKey::from_secret("second").sign(&path).to_string();
        assert!(!takes(&rotated, &unnamed), "only the first tokens of a store do not name their key");
    }

    /// Test cases 1 and 2 of RFC 4231, with their keys padded with zeros as the construction does.
    #[test]
    fn tokens_are_made_as_the_standard_says() {
        let key = |start: &[u8]| {
            let mut bytes = [0; 32];
            bytes.iter_mut().zip(start).for_each(|(to, from)| *to = *from);
            CallbackKey::from(bytes)
        };
        assert_eq!(
            key(&[0x0b; 20]).sign("Hi There").to_string(),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
        );
        assert_eq!(
            key(b"Jefe").sign("what do ya want for nothing?").to_string(),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    #[test]
    fn a_callback_leads_back_to_its_attempt_whatever_its_names_are() {
        for call in ["call_0", "", "../../a b?c#d%2F", "\u{0}\n\"ü\u{1f600}", "call_0~2"] {
            let about = about("acme/öst", "run_1", call, 3);
            let callback = callbacks(7).issue(&about);
            let (path, token) = split(&callback);
            assert!(path.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{path}");
            assert_eq!(callbacks(7).verify(&path, &token), Some(about));
        }
    }

    #[test]
    fn a_token_is_good_for_its_own_attempt_only() {
        let (path, token) = split(&callbacks(7).issue(&about("acme", "run_1", "call_0", 1)));
        let others = [
            about("other", "run_1", "call_0", 1),
            about("acme", "run_2", "call_0", 1),
            about("acme", "run_1", "call_1", 1),
            about("acme", "run_1", "call_0", 2),
        ];
        for other in others {
            let (other_path, other_token) = split(&callbacks(7).issue(&other));
            assert_eq!(callbacks(7).verify(&other_path, &token), None, "{other:?}");
            assert_eq!(callbacks(7).verify(&path, &other_token), None, "{other:?}");
        }
        assert_eq!(callbacks(8).verify(&path, &token), None, "of another store");
        let mut cut = token.clone();
        cut.pop();
        for guess in ["", "x", &cut, &format!("{token}0"), &token.to_uppercase()] {
            assert_eq!(callbacks(7).verify(&path, guess), None, "{guess}");
        }
    }

    #[test]
    fn a_path_that_was_never_issued_leads_nowhere_even_with_a_token() {
        for path in ["", "0", "zz", "00", "5b5d", "5B5D", "ü"] {
            let token = token(&CallbackKey::from([7; 32]), path);
            assert_eq!(callbacks(7).verify(path, &token), None, "{path}");
        }
    }

    #[test]
    fn a_signature_is_valid_for_its_purpose_its_text_and_its_keys_only() {
        let signed = callbacks(7).sign("a", "text");
        assert!(callbacks(7).is_signature("a", "text", &signed));
        assert!(rotated(8, 7).is_signature("a", "text", &signed), "the previous key is accepted");
        assert!(!callbacks(8).is_signature("a", "text", &signed), "the key was removed");
        assert!(!callbacks(7).is_signature("b", "text", &signed));
        assert!(!callbacks(7).is_signature("a", "texts", &signed));
        assert!(!callbacks(7).is_signature("a", "text", ""));
        let token = token(&CallbackKey::from([7; 32]), "text");
        assert!(!callbacks(7).is_signature("a", "text", &token), "a callback token is no signature");
        assert_ne!(signed, token);
    }

    #[test]
    fn nothing_secret_is_shown() {
        let callback = callbacks(7).issue(&about("acme", "run_1", "call_0", 1));
        let secret = CallbackKey::from_secret("a secret");
        assert!(
            !format!("{:?}", CallbackSecrets { signing: secret, also_accepted: None }).contains("a secret")
        );
        let shown = format!("{callback:?} {:?}", CallbackKey::generate());
        assert!(!shown.contains(callback.token.as_str()), "{shown}");
        assert!(shown.ends_with("CallbackKey(…)"), "{shown}");
        assert_ne!(CallbackKey::generate(), CallbackKey::generate());
    }
}
