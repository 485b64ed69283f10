// Who uses the console: the key or token that calls are made with, and what it is for.
import { computed, signal } from "@preact/signals";
import type { Schemas } from "./api";

export type Caller = Schemas["Caller"];
export type Scope = Schemas["Scope"];

/** Renewal is how a token is replaced before it expires: with what, and when, in milliseconds since 1970. */
export interface Renewal { token: string; at: number }

// A key or token lives as long as its tab: it is in no cookie and on no disk.
const kept = "postdate.credential";
const keptRenewal = "postdate.renewal";
const keptTenant = "postdate.tenant";

/** sessions counts logins and logouts. A token that is renewed stays in its session. */
export const sessions = signal(0);

export const credential = signal(sessionStorage.getItem(kept) ?? "");
export const renewal = signal<Renewal | undefined>(JSON.parse(sessionStorage.getItem(keptRenewal) ?? "null") ?? undefined);

/** tenant is the one that an administrator acts for; "": their own, and all in figures. */
export const tenant = signal(sessionStorage.getItem(keptTenant) ?? "");

/** caller is what the API says of the credential, without regard to tenant; undefined: nobody is logged in. */
export const caller = signal<Caller>();

/** farewell says why somebody has to log in again. */
export const farewell = signal("");

export const isAdmin = computed(() => may("admin"));

/** may reports whether the caller may make calls that need a scope. */
export function may(scope: Scope): boolean {
  return caller.value?.scopes.includes(scope) ?? false;
}

/** keep begins a session with a credential for the calls that follow, in place of any other; "": with none. */
export function keep(secret: string, renew?: Renewal) {
  sessions.value++;
  renewed(secret, renew);
}

/** renewed goes on in the same session with another credential. */
export function renewed(secret: string, renew?: Renewal) {
  store(kept, secret);
  store(keptRenewal, renew && JSON.stringify(renew));
  renewal.value = renew;
  credential.value = secret;
}

export function actFor(name: string) {
  tenant.value = name;
  store(keptTenant, name);
}

/** leave forgets the credential, and says why. */
export function leave(why: string) {
  farewell.value = why;
  caller.value = undefined;
  keep("");
  actFor("");
}

function store(name: string, value: string | undefined) {
  if (value) sessionStorage.setItem(name, value);
  else sessionStorage.removeItem(name);
}
