export type Range = { key: string; end: string; read: boolean; write: boolean };
export type Place = { name: string; self?: boolean; client_urls: string[] | null };
export type Session = {
  cluster: string; member: string; name: string; version: string; auth: boolean; secure: boolean; user: string; certificate?: boolean; root: boolean; expired?: boolean; ranges: Range[]; endpoints?: string; members?: Place[];
};

// isWeb reports whether a browser can open an address.
export const isWeb = (u: string) => /^https?:\/\//.test(u);

// consoleAt returns the address of the console at an address for clients.
export const consoleAt = (u: string) => u.replace(/\/$/, "") + "/console/";

// consoleOf returns the address of a member's console, null if it has none that a browser can open.
export function consoleOf(m: Place): string | null {
  const u = (m.client_urls || []).find(isWeb);
  return u ? consoleAt(u) : null;
}

// The other members as this member has named them last, for a reader whose member does not answer any more.
let known: Place[] = [];
export const remember = (members: Place[]) => { known = members.filter((m) => !m.self && m.name && consoleOf(m)).sort((a, b) => (a.name < b.name ? -1 : 1)); };
export const others = () => known;

// member is the name of the member that serves this page.
let member = "this member";
export const named = (name: string) => { member = name; };
export const self = () => member;
