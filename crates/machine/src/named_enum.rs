//! Enums without data whose values have a name, in the log and elsewhere.

/// An enum with the list of its values. Each has one name, by which it is stored and shown.
macro_rules! named_enum {
    ($(#[$attribute:meta])* pub enum $name:ident { $($(#[$note:meta])* $value:ident = $word:literal,)+ }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$note])* #[serde(rename = $word)] $value,)+
        }

        impl $name {
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$value),+];

            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$value => $word,)+ }
            }
        }
    };
}

pub(crate) use named_enum;
