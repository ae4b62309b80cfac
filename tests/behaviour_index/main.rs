//! Compares the behaviour catalogue with the tests that passed: every id has a test or a reason why not.
//!
//! ```text
//! behaviour-index target/test-output.txt docs/behaviours.md
//! ```

mod catalogue;
mod id;
mod test_output;
mod verdict;

use std::process::ExitCode;
use std::{env, fs};

use catalogue::Catalogue;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [test_output, catalogue] = arguments.as_slice() else {
        eprintln!("usage: behaviour-index TEST_OUTPUT CATALOGUE");
        return ExitCode::from(2);
    };
    match index(test_output, catalogue) {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(complaints) => {
            for complaint in &complaints {
                eprintln!("{complaint}");
            }
            eprintln!("behaviour index: {} complaint(s) about {catalogue}", complaints.len());
            ExitCode::FAILURE
        }
    }
}

fn index(test_output: &str, catalogue: &str) -> Result<String, Vec<String>> {
    let read = |path: &str| fs::read_to_string(path).map_err(|error| vec![format!("{path}: {error}")]);
    let catalogue = Catalogue::parse(&read(catalogue)?)?;
    let passed = test_output::passed_tests(&read(test_output)?);
    verdict::judge(&catalogue, &passed)
}
