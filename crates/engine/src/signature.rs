//! Signatures of texts that the embedder gives away and gets back, such as tokens.

use crate::engine::Engine;

impl Engine {
    /// Signs a text so that every process on the store can verify it, also after a restart. `purpose` names what the
    /// text is: a signature for one purpose is valid for no other. None if this engine accepts no callbacks
    /// ([`Settings::callbacks_at`](crate::Settings::callbacks_at)): it has no key then.
    #[must_use]
    pub fn sign(&self, purpose: &str, text: &str) -> Option<String> {
        Some(self.node().callbacks.as_ref()?.sign(purpose, text))
    }

    /// Whether a process on the store signed the text for this purpose, with a key that is still accepted. Reads no more
    /// than [`Engine::verify_callback`] does.
    pub async fn verify_signature(&self, purpose: &str, text: &str, signature: &str) -> bool {
        let node = self.node();
        match &node.callbacks {
            Some(callbacks) => {
                let signed = (purpose, text);
                callbacks.verify_signature(signed, signature, &*node.store, node.clock.now()).await
            }
            None => false,
        }
    }
}
