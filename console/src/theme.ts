// Light or dark: the system's choice, or the reader's own.

import { effect, signal } from "@preact/signals";

export type Theme = "auto" | "light" | "dark";

const KEY = "nebula.theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

function stored(): Theme {
  const value = localStorage.getItem(KEY);
  return value === "light" || value === "dark" ? value : "auto";
}

/** What the reader has chosen. */
export const theme = signal<Theme>(stored());
const systemIsDark = signal(dark.matches);
dark.addEventListener("change", () => (systemIsDark.value = dark.matches));

/** Whether dark colours are shown. */
export function isDark(): boolean {
  return theme.value === "auto" ? systemIsDark.value : theme.value === "dark";
}

effect(() => {
  document.documentElement.dataset["theme"] = theme.value;
  if (theme.value === "auto") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, theme.value);
});

/** The present value of a colour of the style sheet, such as "--accent". */
export function colour(name: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}
