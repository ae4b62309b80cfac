//! The text of a JSON string without its escapes.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

/// The inside of a string whose escapes have been checked.
pub(super) struct Quoted<'t> {
    pub(super) raw: &'t [u8],
    pub(super) escaped: bool,
}

impl<'t> Quoted<'t> {
    pub(super) fn unescaped(&self) -> Cow<'t, str> {
        let raw = core::str::from_utf8(self.raw).unwrap_or_default();
        if !self.escaped {
            return Cow::Borrowed(raw);
        }
        let mut units: Vec<u16> = Vec::new();
        let mut rest = raw;
        while let Some((plain, after)) = rest.split_once('\\') {
            units.extend(plain.encode_utf16());
            let length = match after.as_bytes().first() {
                Some(b'u') => {
                    let code = after.as_bytes().get(1..5).and_then(hex_value).unwrap_or_default();
                    units.push(u16::try_from(code).unwrap_or_default());
                    5
                }
                other => {
                    units.push(u16::from(match other {
                        Some(b'b') => 8,
                        Some(b'f') => 12,
                        Some(b'n') => b'\n',
                        Some(b'r') => b'\r',
                        Some(b't') => b'\t',
                        Some(same) => *same,
                        None => 0,
                    }));
                    1
                }
            };
            rest = after.get(length..).unwrap_or_default();
        }
        units.extend(rest.encode_utf16());
        Cow::Owned(String::from_utf16_lossy(&units))
    }
}

pub(super) fn hex_value(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |sum, digit| Some(sum * 16 + char::from(*digit).to_digit(16)?))
}
