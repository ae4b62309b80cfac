//! The fenced blocks of a page, and what the test does with each.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The line where it begins, counted from 1.
    pub(crate) line: usize,
    pub(crate) does: Does,
    pub(crate) text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    /// Commands.
    Run { in_the_tree: bool },
    /// A command that keeps running.
    Serve,
    /// A file of this name.
    Write { name: String },
    /// The expected output of the block before it.
    Expect { is_json: bool },
    /// Only for the reader.
    Show { is_json: bool },
}

impl Does {
    fn from_info(info: &str) -> Option<Self> {
        let words: Vec<&str> = info.split_whitespace().collect();
        Some(match words.as_slice() {
            ["sh"] => Self::Run { in_the_tree: false },
            ["sh", "in-the-tree"] => Self::Run { in_the_tree: true },
            ["sh", "server"] => Self::Serve,
            ["json", "output"] => Self::Expect { is_json: true },
            ["text", "output"] => Self::Expect { is_json: false },
            ["toml" | "json" | "python" | "typescript" | "html", name] if name.contains('.') => {
                Self::Write { name: (*name).to_owned() }
            }
            ["json"] => Self::Show { is_json: true },
            ["text" | "rust" | "mermaid"] => Self::Show { is_json: false },
            _ => return None,
        })
    }
}

/// All blocks of a page, in order.
pub(crate) fn blocks(page: &str, text: &str) -> Result<Vec<Block>, String> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (line, number) in text.lines().zip(1..) {
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(info), None) => {
                let does = Does::from_info(info).ok_or_else(|| {
                    format!(
                        "{page}:{number}: unknown block type `{info}`; tests/pages/main.rs lists the known ones"
                    )
                })?;
                open = Some(Block { line: number, does, text: String::new() });
            }
            (None, Some(block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    match open {
        Some(block) => Err(format!("{page}:{}: the block has no end", block.line)),
        None => Ok(blocks),
    }
}

#[test]
fn a_block_without_a_purpose_is_refused() {
    for bad in [
        "```\na\n```\n",
        "```yaml\na\n```\n",
        "```toml\na = 1\n```\n",
        "```sh sometimes\n```\n",
        "```sh\na\n",
    ] {
        assert!(blocks("page.md", bad).is_err(), "{bad}");
    }
    let page = "Say:\n\n```sh server\nholdpoint serve\n```\nand\n```toml a.toml\nb = 1\n```\n";
    let found = blocks("page.md", page).unwrap();
    assert_eq!(found[0], Block { line: 3, does: Does::Serve, text: "holdpoint serve\n".into() });
    assert_eq!(found[1].does, Does::Write { name: "a.toml".into() });
}
