//! Finds where a JSON value ends, by quotes and brackets alone.

use super::broken;
use crate::client::CallError;

/// How deep values may be nested: as deep as Go's encoding/json reads.
const DEPTH_MAX: u32 = 10_000;

/// How far a value has been read.
#[derive(Debug, Default)]
pub(super) struct Nesting {
    depth: u32,
    is_in_string: bool,
    /// Within a string, after a backslash.
    is_escaped: bool,
    /// A number, `true` or the like: it ends before what follows it.
    is_bare: bool,
}

impl Nesting {
    /// Reads on from `at`, and stops behind the value. Returns whether that is reached.
    pub(super) fn read(&mut self, bytes: &[u8], at: &mut usize) -> Result<bool, CallError> {
        while let Some(&byte) = bytes.get(*at) {
            if self.is_in_string {
                *at += self.read_string(&bytes[*at..]);
                if !self.is_in_string && self.depth == 0 {
                    return Ok(true);
                }
                continue;
            }
            match byte {
                b'}' | b']' | b',' if self.depth == 0 => return self.end_of_bare(),
                b' ' | b'\n' | b'\r' | b'\t' if self.depth == 0 => return self.end_of_bare(),
                b'"' if self.is_bare => return Err(broken("a quote follows a value")),
                b'"' => self.is_in_string = true,
                b'{' | b'[' if self.is_bare => return Err(broken("a bracket follows a value")),
                b'{' | b'[' => {
                    self.depth += 1;
                    if self.depth > DEPTH_MAX {
                        return Err(broken(&format!("more than {DEPTH_MAX} brackets deep")));
                    }
                }
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        *at += 1;
                        return Ok(true);
                    }
                }
                _ if self.depth == 0 => self.is_bare = true,
                _ => {}
            }
            *at += 1;
        }
        Ok(false)
    }

    fn end_of_bare(&self) -> Result<bool, CallError> {
        if self.is_bare { Ok(true) } else { Err(broken("a value is missing")) }
    }

    /// Reads on within a string. Returns how far.
    fn read_string(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        if std::mem::take(&mut self.is_escaped) {
            at = 1;
        }
        while let Some(found) = memchr::memchr2(b'"', b'\\', &bytes[at..]) {
            at += found + 1;
            if bytes[at - 1] == b'"' {
                self.is_in_string = false;
                return at;
            }
            if at == bytes.len() {
                self.is_escaped = true;
                return at;
            }
            at += 1;
        }
        bytes.len()
    }
}
