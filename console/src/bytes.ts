// Keys and values are bytes: Uint8Array here, base64 on the way, and text with escapes on the screen.

export type Bytes = Uint8Array;

export const empty: Bytes = new Uint8Array();

export function fromBase64(s: string | undefined | null): Bytes {
  const text = atob(s || "");
  const out = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) out[i] = text.charCodeAt(i);
  return out;
}

export function toBase64(b: Bytes): string {
  let text = "";
  for (let i = 0; i < b.length; i += 8192) text += String.fromCharCode(...b.subarray(i, i + 8192));
  return btoa(text);
}

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
const hidden = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cn}\p{Cs}\u115f\u1160\u3164\uffa0]|\p{M}{4,}/u;
const hiddenParts = /([\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cn}\p{Cs}\u115f\u1160\u3164\uffa0]|\p{M}{4,})/u;
const hiddenInLines = /((?![\n\t])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cn}\p{Cs}\u115f\u1160\u3164\uffa0]|\p{M}{4,})/u;

const escapeChars = (s: string) => [...s].map((c) => "\\u{" + c.codePointAt(0)!.toString(16) + "}").join("");

// parts divides a text: every second part is an escape. Line ends and tabs stay in multi-line texts.
export function parts(text: string, lines = false): string[] {
  return text.split(new RegExp(lines ? hiddenInLines : hiddenParts, "gu")).map((p, i) => (i % 2 ? escapeChars(p) : p));
}

// keyParts is parts of bytes: those that are no text have an escape for each byte beyond ASCII.
export function keyParts(b: Bytes): string[] {
  const text = asText(b);
  if (text !== null) return parts(text);
  const out = [""];
  for (const x of b) {
    const odd = x < 32 || x > 126;
    if ((out.length % 2 === 0) !== odd) out.push("");
    out[out.length - 1] += odd ? "\\x" + x.toString(16).padStart(2, "0") : String.fromCharCode(x);
  }
  return out;
}

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

// etcdctl returns a command: flags first, and keys that begin with a dash after --, so that no key is taken for a flag. It returns null if
// there is none: a word of a command cannot have a zero byte, and ends there.
export function etcdctl(command: string, flags: (string | false | "")[], ...keys: Bytes[]): string | null {
  if (keys.some((k) => k.includes(0))) return null;
  const words = ["etcdctl", command, ...flags.filter(Boolean)];
  if (keys.some((k) => k[0] === 45)) words.push("--");
  return [...words, ...keys.map(quoted)].join(" ");
}
