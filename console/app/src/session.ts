// Who uses the console: the key or token that calls are made with, and what it is for.
import { computed, signal } from "@preact/signals";
import type { Schemas } from "./api";

export interface Caller { asked: boolean; tenant?: string; scopes: string[] }
export type Scope = Schemas["Scope"];

// A key lives as long as its tab: it is in no cookie and on no disk.
const kept = "postdate.credential";
const keptTenant = "postdate.tenant";

export const credential = signal(sessionStorage.getItem(kept) ?? "");

/** tenant is the one that an administrator acts for; "": their own, and all in figures. */
export const tenant = signal(sessionStorage.getItem(keptTenant) ?? "");

/** caller is what the API says of the credential; undefined: nobody is logged in. */
export const caller = signal<Caller>();

/** farewell says why somebody has to log in again. */
export const farewell = signal("");

export const isAdmin = computed(() => may("admin"));

/** may reports whether the caller may make calls that need a scope. */
export function may(scope: Scope): boolean {
  const c = caller.value;
  return c !== undefined && (!c.asked || c.scopes.includes(scope));
}

export function keep(secret: string) {
  credential.value = secret;
  sessionStorage.setItem(kept, secret);
}

export function actFor(name: string) {
  tenant.value = name;
  sessionStorage.setItem(keptTenant, name);
}

/** leave forgets the credential, and says why. */
export function leave(why: string) {
  farewell.value = why;
  caller.value = undefined;
  credential.value = "";
  sessionStorage.removeItem(kept);
  actFor("");
}
