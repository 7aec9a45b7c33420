// Elements and numbers. Text is always set as text, never as HTML, so that names from a run cannot become part of the
// page.

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined && text !== null) element.textContent = String(text);
  return element;
}

// Control characters and bidirectional marks are shown as their code points.
const unreadable = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;
const readableText = (text) => text.replace(unreadable, (one) => "\\u" + one.charCodeAt(0).toString(16).padStart(4, "0"));

function readable(value) {
  if (typeof value === "string") return readableText(value);
  if (Array.isArray(value)) return value.map(readable);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [readableText(name), readable(one)]));
}

function add(parent, ...children) {
  for (const child of children) if (child) parent.appendChild(child);
  return parent;
}

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

function number(value, digits = 4) {
  if (typeof value === "string") return value;  // "NaN", "Infinity"
  if (!isNumber(value)) return "-";
  if (value !== 0 && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e15)) return value.toExponential(2);
  return value.toLocaleString("en", { maximumSignificantDigits: Math.max(digits, String(Math.trunc(Math.abs(value))).length) });
}

const whole = (value) => (isNumber(value) ? value.toLocaleString("en", { maximumFractionDigits: 0 }) : "-");
const percent = (value, digits = 3) => (isNumber(value) ? number(value, digits) + " %" : "-");

function scaled(value, step, units) {
  if (!isNumber(value)) return "-";
  let unit = 0;
  while (Math.abs(value) >= step && unit + 1 < units.length) { value /= step; ++unit; }
  return number(value, 3) + " " + units[unit];
}
const bytes = (value) => scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
const rate = (value) => scaled(value, 1000, ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"]);

function duration(seconds) {
  if (!isNumber(seconds)) return "-";
  if (seconds < 59.95) return number(seconds, 3) + " s";
  const all = Math.round(seconds), minutes = Math.floor(all / 60), rest = all % 60;
  if (minutes < 60) return minutes + " min " + rest + " s";
  return Math.floor(minutes / 60) + " h " + (minutes % 60) + " min";
}

function table(heading, rows) {
  const element = make("table"), head = add(make("thead"), add(make("tr"), ...heading.map((cell, i) => make("th", rows.length && rows[0][i] && rows[0][i].className !== undefined ? "text" : "", cell))));
  const body = make("tbody");
  for (const row of rows) {
    add(body, add(make("tr"), ...row.map((cell) => {
      if (cell && cell.text !== undefined) return make("td", cell.className, cell.text);
      return make("td", "", cell);
    })));
  }
  const scroll = add(make("div", "scroll"), add(element, head, body));
  scroll.tabIndex = 0;
  return scroll;
}

function facts(pairs) {
  const list = make("dl");
  for (const [name, value] of pairs) {
    if (value === null || value === undefined || value === "-" || value === "") continue;
    add(list, make("dt", "", name), make("dd", "", value));
  }
  return list.childElementCount ? list : null;
}

function card(title, ...content) {
  return add(make("div", "card"), title ? make("h3", "", title) : null, ...content);
}

// Two cards per row if there is room.
function pairs(cards) {
  const there = cards.filter(Boolean), blocks = [];
  for (let i = 0; i < there.length; i += 2) {
    blocks.push(i + 1 < there.length ? add(make("div", "pair"), there[i], there[i + 1]) : there[i]);
  }
  return blocks;
}

function keys(names) {
  const list = make("div", "keys");
  for (const [label, variable] of names) {
    const key = make("span", "", label);
    key.style.setProperty("--key", "var(--" + variable + ")");
    add(list, key);
  }
  return list;
}
