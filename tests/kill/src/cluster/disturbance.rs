//! What happens to a world of three nodes besides kills.

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Disturbance {
    PausedAnywhere,
    /// The node paused between commit and send, and other nodes found the attempt lost.
    PausedBeforeSending,
    /// The same, and the node resumed after a person had decided to retry.
    OvertakenByARetry,
    /// The node paused before a commit, others claimed its run, and it resumed before they had stored anything.
    OvertakenBeforeStoring,
    ServerCrashed,
    ConnectionCut,
    StandbyPromoted,
    /// A process did not reach its server at startup, reported it, and was started again.
    StartedWithoutServer,
}

impl Disturbance {
    /// What a whole matrix must cover: everything that is not left to chance.
    pub const WANTED: [Self; 7] = [
        Self::PausedAnywhere,
        Self::PausedBeforeSending,
        Self::OvertakenByARetry,
        Self::OvertakenBeforeStoring,
        Self::ServerCrashed,
        Self::ConnectionCut,
        Self::StandbyPromoted,
    ];

    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::PausedAnywhere => "a node pauses past its lease and resumes",
            Self::PausedBeforeSending => "it paused between commit and send, and others took over",
            Self::OvertakenByARetry => "the same, and it resumes after a person has chosen retry",
            Self::OvertakenBeforeStoring => {
                "it paused before a commit, and others had claimed its run and stored nothing"
            }
            Self::ServerCrashed => "the server crashes and comes back",
            Self::ConnectionCut => "a connection breaks off after any byte",
            Self::StandbyPromoted => "the server dies and its standby is promoted",
            Self::StartedWithoutServer => "a process finds no server when it starts",
        }
    }
}
