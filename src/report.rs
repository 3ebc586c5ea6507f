//! stub
use crate::core::ids::ObjectKey; use crate::replay::Replay; use std::io;
/// o
pub struct Options { /// c
pub color: bool, /// w
pub width: usize, /// c
pub connector: Option<ObjectKey> }
/// t
pub fn text(r: &Replay, _o: &Options, out: &mut dyn io::Write) -> io::Result<()> { 
 for a in &r.actions { writeln!(out, "{} {:?} {} {} {:?} :: {} => {:?}", a.decision.at.since(r.first_at), a.decision.action.verb, a.decision.action.cluster, a.decision.action.object, a.decision.action.annotations.iter().map(|(k,v)|(k,v.as_ref().map(|v|v.chars().take(30).collect::<String>()))).collect::<Vec<_>>(), a.decision.because, a.finished)?; }
 for n in &r.notes { writeln!(out, "{} {:?}", n.at.since(r.first_at), n.what)?; }
 writeln!(out, "RECORDED")?; for o in &r.recorded { writeln!(out, "{o:?}")?; }
 writeln!(out, "REPLAYED")?; for o in &r.replayed { writeln!(out, "{o:?}")?; }
 writeln!(out, "{:?} ended {}", r.verdict, r.ended_at.since(r.first_at)) }
/// j
pub fn json(_r: &Replay, _o: &Options, _out: &mut dyn io::Write) -> io::Result<()> { Ok(()) }
