// Filters and names of destinations.

import { useEffect, useState } from "preact/hooks";

/** The glob of a filter: a glob as it is, and a part of a name between stars. */
export function globOf(filter: string): string {
  const text = filter.trim();
  if (text === "") return "**";
  return /[*?[\]]/.test(text) ? text : `**${text}**`;
}

/** Whether a name has a glob's special characters. */
export function isGlob(name: string): boolean {
  return /[*?[\]]/.test(name);
}

/** A value once it has not changed for some milliseconds. */
export function useDebounced<T>(value: T, milliseconds: number): T {
  const [settled, settle] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => settle(value), milliseconds);
    return () => clearTimeout(timer);
  }, [value, milliseconds]);
  return settled;
}
