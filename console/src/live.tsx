// Live views: what they show has an age, and turns grey when the member has not been heard for two rounds.

import { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Failure } from "./api";
import { self } from "./session";
import { duration, ErrorBox, link, Others, Text, time } from "./ui";

// Age is when the member was heard last, and for how many milliseconds it has been silent; 0 while it is not.
export type Age = { heard: number; silent: number; renew: () => void };

// useAge follows the age of a view that the member renews every round.
export function useAge(round = 2000, paused = false): Age {
  const heard = useRef(Date.now());
  const [silent, set] = useState(0);
  useEffect(() => {
    if (paused) return;
    heard.current = Date.now();
    const timer = setInterval(() => {
      const age = Date.now() - heard.current;
      set(age > 2 * round + 1000 ? Math.floor(age / 1000) * 1000 : 0);
    }, 250);
    return () => clearInterval(timer);
  }, [paused]);
  return { heard: heard.current, silent: paused ? 0 : silent, renew: () => { heard.current = Date.now(); set(0); } };
}

// ago is how long ago something was.
export const ago = (ms: number) => duration(Math.max(1, Math.round(ms / 1000))) + " ago";

// Aging shows a live view: what went wrong, and in grey what is not the present.
export function Aging({ age, error, empty, children }: { age: Age; error: unknown; empty?: boolean; children: ComponentChildren }) {
  const code = (error as Failure | null)?.code;
  return (
    <>
      {age.silent ? <Silent age={age} empty={empty} /> : null}
      {age.silent && (code === "silent" || code === "unreachable") ? null : <ErrorBox error={error} />}
      <div class={age.silent ? "stale" : undefined}>{children}</div>
    </>
  );
}

function Silent({ age, empty }: { age: Age; empty?: boolean }) {
  return (
    <div class="error" role="alert">
      <strong><Text value={self()} most={60} /> has not answered since {time(age.heard)}</strong><span aria-hidden="true">, for {duration(age.silent / 1000)}</span>. {empty ? "" : "What is shown in grey is what was true then. "}
      Next: check whether its process runs and is not suspended<Others before="; or open the console of another member: " />.
    </div>
  );
}

// LocalNote says that the newest answer has data of this member alone.
export function LocalNote() {
  const [note, set] = useState<{ text: string; at: number } | null>(null);
  useEffect(() => {
    const local = (e: any) => set(e.detail ? { text: e.detail, at: Date.now() } : null), leave = () => set(null);
    addEventListener("vigil-local", local);
    addEventListener("hashchange", leave);
    return () => { removeEventListener("vigil-local", local); removeEventListener("hashchange", leave); };
  }, []);
  if (!note) return null;
  return <p class="local" role="status"><strong><Text value={note.text} />.</strong> This page shows what <Text value={self()} most={60} /> itself had at {time(note.at)}, which may be old. Nothing can be written. The <a href={link("overview")}>overview</a> names the members that do not answer.</p>;
}
