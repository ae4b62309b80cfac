//! The rules of the tree that no compiler checks, each with a test that shows the rule bites.

// The inline module lets the files lie in a folder of their own beside this one.
mod tidy {
    // What the rules read.
    mod markdown;
    mod rust_code;
    mod tree;

    // The rules, one subject each.
    mod banned;
    mod changelog;
    mod codes;
    mod commands;
    mod dependencies;
    mod fault_headers;
    mod faults;
    mod guarantees;
    mod headers;
    mod links;
    mod machine_paths;
    mod maps;
    mod names;
    mod pictures;
    mod purity;
    mod sizes;
    mod type_names;
    mod whitespace;
    mod words;
}
