// Keys and values are bytes: Uint8Array here, base64 on the way, and text with escapes on the screen.

export type Bytes = Uint8Array;

export const empty: Bytes = new Uint8Array();

export function fromBase64(s: string | undefined | null): Bytes {
  const text = atob(s || "");
  const out = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) out[i] = text.charCodeAt(i);
  return out;
}

// latin1 returns a text with a character for each byte.
function latin1(b: Bytes): string {
  let text = "";
  for (let i = 0; i < b.length; i += 8192) text += String.fromCharCode(...b.subarray(i, i + 8192));
  return text;
}

export const toBase64 = (b: Bytes): string => btoa(latin1(b));

export const fromText = (s: string): Bytes => new TextEncoder().encode(s);

// asText returns bytes as a text, null if they are not UTF-8.
export function asText(b: Bytes): string | null {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(b);
  } catch {
    return null;
  }
}

export function same(a: Bytes, b: Bytes): boolean {
  return a.length === b.length && a.every((x, i) => x === b[i]);
}

export function compare(a: Bytes, b: Bytes): number {
  for (let i = 0; i < Math.min(a.length, b.length); i++) if (a[i] !== b[i]) return a[i] - b[i];
  return a.length - b.length;
}

// In addresses a key is its text, or base64 if it has none.
const marker = "base64:";

export function toAddress(b: Bytes): string {
  const text = asText(b);
  return text === null || text.startsWith(marker) || hidden.test(text) ? marker + toBase64(b) : text;
}

export function fromAddress(s: string): Bytes {
  if (!s.startsWith(marker)) return fromText(s);
  try {
    return fromBase64(s.slice(marker.length).replaceAll(" ", "+")); // a plus that was not escaped is a space in an address
  } catch {
    return empty;
  }
}

// hidden matches characters that a reader cannot see, or that change the order or the look of others: control characters, marks of
// direction, invisible characters, separators, private and unassigned ones, and combining marks in large numbers.
const invisible = "[\\p{Cc}\\p{Cf}\\p{Zl}\\p{Zp}\\p{Co}\\p{Cn}\\p{Cs}\\u115f\\u1160\\u3164\\uffa0]|\\p{M}{4,}";
const inLines = "(?![\\n\\t])" + invisible;
const hidden = new RegExp(invisible, "u"), hiddenInLines = new RegExp(inLines, "u");
const allHidden = new RegExp(`(${invisible})`, "gu"), allHiddenInLines = new RegExp(`(${inLines})`, "gu");

const escapeChars = (s: string) => [...s].map((c) => "\\u{" + c.codePointAt(0)!.toString(16) + "}").join("");

// signed writes the escapes that a reader meets most as signs.
const signed = (s: string) => s.replaceAll("\\u{a}", "↵").replaceAll("\\u{9}", "⇥");

// parts divides a text: every second part is an escape. Line ends and tabs stay in multi-line texts.
export function parts(text: string, lines = false): string[] {
  return text.split(lines ? allHiddenInLines : allHidden).map((p, i) => (i % 2 ? signed(escapeChars(p)) : p));
}

// escaped matches an escape: of a character, or of a byte that is no text.
const escape = String.raw`(?:x[0-9a-fA-F]{2}|u\{[0-9a-fA-F]{1,6}\})`;
const escapes = new RegExp(String.raw`\\${escape}`, "g"), runs = new RegExp(String.raw`((?:\\${escape})+)`), beforeEscape = new RegExp(String.raw`\\(?=${escape})`, "g");

// toField returns bytes as a text that a field of a form does not change: what a reader cannot see is an escape, and so are line ends,
// unless it has lines, and a backslash that would begin an escape.
export function toField(b: Bytes, lines = false): string {
  const text = asText(b);
  const s = (text ?? latin1(b)).replace(beforeEscape, "\\u{5c}");
  if (text !== null) return s.replace(lines ? allHiddenInLines : allHidden, escapeChars);
  return s.replace(lines ? /[^ -~\n\t]/g : /[^ -~]/g, (c) => "\\x" + c.charCodeAt(0).toString(16).padStart(2, "0"));
}

// fromField is the inverse of toField.
export function fromField(s: string): Bytes {
  const out = new Uint8Array(3 * s.length), encoder = new TextEncoder();
  let n = 0, from = 0;
  const add = (text: string) => { if (text) n += encoder.encodeInto(text, out.subarray(n)).written; };
  for (const m of s.matchAll(escapes)) {
    const byte = m[0][1] !== "u", code = parseInt(m[0].slice(byte ? 2 : 3), 16);
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) continue; // not a character
    add(s.slice(from, m.index));
    if (byte) out[n++] = code;
    else add(String.fromCodePoint(code));
    from = m.index + m[0].length;
  }
  add(s.slice(from));
  return out.slice(0, n);
}

// Editable is a value as the text of a field, and the way back.
export type Editable = { text: string; form: "" | "windows" | "escapes"; bytes: (text: string) => Bytes };

// editable returns a value such that each part that is not edited keeps its bytes. A field turns all line ends into \n: they return only if
// all were \r\n. What else a field would change or hide is an escape.
export function editable(b: Bytes): Editable {
  const text = asText(b), short = text && text.replaceAll("\r\n", "\n");
  const long = (t: string) => t.replaceAll("\n", "\r\n");
  if (short === null || hiddenInLines.test(short) || (short !== text && long(short) !== text)) return { text: toField(b, true), form: "escapes", bytes: fromField };
  return short === text ? { text: short, form: "", bytes: fromText } : { text: short, form: "windows", bytes: (t) => fromText(long(t)) };
}

// keyParts is parts of bytes: of those that are no text, each byte beyond ASCII is an escape.
export const keyParts = (b: Bytes): string[] => toField(b).split(runs).map(signed);

export const plain = (b: Bytes): string => keyParts(b).join("");

// cut returns the beginning of a text that is longer than a list can show, and says how long it is.
export const cut = (s: string, most: number): string => (s.length <= most ? s : [...s.slice(0, most)].slice(0, -1).join("") + `… (${s.length.toLocaleString("en")} characters)`);

// visible returns a name from a stranger as one line of bounded length for titles and labels, where it cannot have markup.
export const visible = (s: string, most = 80): string => parts(cut(s, most)).join("");

// typeable reports whether a reader can type a name that is shown.
export const typeable = (s: string): boolean => s.length > 0 && s.length <= 60 && !hidden.test(s) && s.trim() === s;

// quoted returns bytes as a word for a shell. No shell takes anything of it for a command: a quote or a backslash is never inside of single
// quotes, where shells differ. bash, zsh and BusyBox know the form for bytes that are no text; others read another key.
export function quoted(b: Bytes): string {
  const text = asText(b);
  if (text !== null && !hidden.test(text)) return /^[\w./][\w./:@%+=-]*$/.test(text) ? text : "'" + text.replaceAll(/['\\]/g, (c) => `'"${c === "'" ? c : "\\\\"}"'`) + "'";
  let out = "$'";
  for (const x of b) out += x < 32 || x > 126 || x === 39 || x === 92 ? "\\x" + x.toString(16).padStart(2, "0") : String.fromCharCode(x);
  return out + "'";
}

// connection has the flags with which etcdctl reaches this member as this reader.
let connection: string[] = [];
export const connect = (flags: (string | false)[]) => { connection = flags.filter(Boolean) as string[]; };

// etcdctl returns a command: flags first, and keys that begin with a dash after --, so that no key is taken for a flag. It returns null if
// there is none: a word of a command cannot have a zero byte, and ends there.
export function etcdctl(command: string, flags: (string | false | "")[], ...keys: Bytes[]): string | null {
  if (keys.some((k) => k.includes(0))) return null;
  const words = ["etcdctl", ...connection, command, ...flags.filter(Boolean)];
  if (keys.some((k) => k[0] === 45)) words.push("--");
  return [...words, ...keys.map(quoted)].join(" ");
}
