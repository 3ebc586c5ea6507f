'use strict';
// Words and numbers, as the picture and the live page write them.

const HOPS = ['upstream', 'mirrored', 'carried', 'announced'];
const HOP_TITLES = { upstream: 'upstream', mirrored: 'hub annotation', carried: 'edge annotation', announced: 'gateways announce' };

const pad = (n, width) => String(n).padStart(width, '0');

/** `09:20:13.042`, UTC. */
function clock(ms) {
  return new Date(ms).toISOString().slice(11, 23);
}

/** `85 ms`, `2.06 s`, `52.2 s`, `1 min 15 s`, `2 h 5 min`, as in the text report. */
function duration(ms) {
  const two = (n, unit, rest, restUnit) => (rest ? `${n} ${unit} ${rest} ${restUnit}` : `${n} ${unit}`);
  const seconds = Math.round(ms / 1000);
  const minutes = Math.round(ms / 60000);
  const hours = Math.round(ms / 3600000);
  if (ms < 1000) return `${ms} ms`;
  if (Math.round(ms / 10) < 1000) return `${(Math.round(ms / 10) / 100).toFixed(2)} s`;
  if (Math.round(ms / 100) < 600) return `${(Math.round(ms / 100) / 10).toFixed(1)} s`;
  if (seconds < 3600) return two(Math.floor(seconds / 60), 'min', seconds % 60, 's');
  if (minutes < 1440) return two(Math.floor(minutes / 60), 'h', minutes % 60, 'min');
  return two(Math.floor(hours / 24), 'd', hours % 24, 'h');
}

const count = (n, one, many) => (n === 1 ? `1 ${one}` : `${n === 0 ? 'no' : n.toLocaleString('en')} ${many || one + 's'}`);
/** `not_carried` as words. */
const words = (name) => name.replaceAll('_', ' ');
const stateWord = (online) => (online ? 'online' : 'offline');

/** The first index whose item is not before `ms`. */
function lowerBound(items, ms, at) {
  let low = 0;
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (at(items[middle]) < ms) low = middle + 1;
    else high = middle;
  }
  return low;
}
