//! Compares the behaviour catalogue with the tests that passed: every id has one owning test or a reason why not.
//!
//! ```text
//! behaviour-index target/test-output.txt docs/behaviours.md tests/behaviour_index/owners.txt
//! ```

mod catalogue;
mod id;
mod owners;
mod test_output;
mod verdict;

use std::process::ExitCode;
use std::{env, fs};

use catalogue::Catalogue;
use owners::Owners;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [test_output, catalogue, owners] = arguments.as_slice() else {
        eprintln!("usage: behaviour-index TEST_OUTPUT CATALOGUE OWNERS");
        return ExitCode::from(2);
    };
    match index(test_output, catalogue, owners) {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(complaints) => {
            for complaint in &complaints {
                eprintln!("{complaint}");
            }
            eprintln!("behaviour index: {} complaint(s) about {catalogue} and {owners}", complaints.len());
            ExitCode::FAILURE
        }
    }
}

fn index(test_output: &str, catalogue: &str, owners: &str) -> Result<String, Vec<String>> {
    let read = |path: &str| fs::read_to_string(path).map_err(|error| vec![format!("{path}: {error}")]);
    let catalogue = Catalogue::parse(&read(catalogue)?)?;
    let owners = Owners::parse(&read(owners)?)?;
    let passed = test_output::passed_tests(&read(test_output)?);
    verdict::judge(&catalogue, &owners, &passed)
}
