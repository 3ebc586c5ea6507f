//! Finds where a JSON value ends, by quotes and brackets alone.

use super::broken;
use crate::client::CallError;

/// The deepest nesting: as deep as Go's encoding/json reads.
const DEPTH_MAX: u32 = 10_000;

/// The state of the scan of a value.
#[derive(Debug, Default)]
pub(super) struct Nesting {
    depth: u32,
    within: Within,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Within {
    /// Between the parts of an object or a list, or before the value.
    #[default]
    Brackets,
    String,
    /// Within a string, after a backslash.
    Escape,
    /// A number, `true` or the like as the whole value: it ends before the next byte.
    Bare,
}

impl Nesting {
    /// Reads from `at` and stops after the value. Returns whether its end was reached.
    pub(super) fn read(&mut self, bytes: &[u8], at: &mut usize) -> Result<bool, CallError> {
        while let Some(&byte) = bytes.get(*at) {
            match (self.within, byte) {
                (Within::Escape, _) => self.within = Within::String,
                (Within::String, _) => {
                    let Some(end) = memchr::memchr2(b'"', b'\\', &bytes[*at..]) else {
                        *at = bytes.len();
                        return Ok(false);
                    };
                    *at += end;
                    let is_end = bytes[*at] == b'"';
                    self.within = if is_end { Within::Brackets } else { Within::Escape };
                    if is_end && self.depth == 0 {
                        *at += 1;
                        return Ok(true);
                    }
                }
                (Within::Bare, b'}' | b']' | b',' | b' ' | b'\n' | b'\r' | b'\t') => {
                    return Ok(true);
                }
                (Within::Bare, b'"' | b'{' | b'[') => {
                    return Err(broken("a quote or bracket follows a value"));
                }
                (Within::Brackets, b'"') => self.within = Within::String,
                (Within::Brackets, b'{' | b'[') => {
                    self.depth += 1;
                    if self.depth > DEPTH_MAX {
                        return Err(broken(&format!("more than {DEPTH_MAX} brackets deep")));
                    }
                }
                (Within::Brackets, b'}' | b']' | b',' | b' ' | b'\n' | b'\r' | b'\t')
                    if self.depth == 0 =>
                {
                    return Err(broken("a value is missing"));
                }
                (Within::Brackets, b'}' | b']') => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        *at += 1;
                        return Ok(true);
                    }
                }
                (Within::Brackets, _) if self.depth == 0 => self.within = Within::Bare,
                (Within::Brackets | Within::Bare, _) => {}
            }
            *at += 1;
        }
        Ok(false)
    }
}
