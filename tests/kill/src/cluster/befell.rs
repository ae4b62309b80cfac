//! What happens to a world of three nodes besides kills.

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Befell {
    PausedAnywhere,
    /// The node paused between commit and send, and other nodes found the attempt lost.
    PausedBeforeSending,
    /// The same, and the node resumed after a person had decided to retry.
    OutrunByARetry,
    /// The node paused before a commit, others claimed its run, and it resumed before they had stored anything.
    OutrunBeforeStoring,
    ServerCrashed,
    ConnectionCut,
    StandbyPromoted,
    /// A process did not reach its server at startup, reported it, and was started again.
    StartedInVain,
}

impl Befell {
    /// What a whole matrix must cover: everything that is not left to chance.
    pub const WANTED: [Self; 7] = [
        Self::PausedAnywhere,
        Self::PausedBeforeSending,
        Self::OutrunByARetry,
        Self::OutrunBeforeStoring,
        Self::ServerCrashed,
        Self::ConnectionCut,
        Self::StandbyPromoted,
    ];

    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::PausedAnywhere => "a node stands still past its lease and goes on",
            Self::PausedBeforeSending => "it stood between commit and send, and others took over",
            Self::OutrunByARetry => "the same, and it goes on when a person has said retry",
            Self::OutrunBeforeStoring => {
                "it stood before a commit, and others had claimed its run and stored nothing"
            }
            Self::ServerCrashed => "the server crashes and comes back",
            Self::ConnectionCut => "a connection breaks off after any byte",
            Self::StandbyPromoted => "the server dies and its standby is promoted",
            Self::StartedInVain => "a process finds no server when it starts",
        }
    }
}
