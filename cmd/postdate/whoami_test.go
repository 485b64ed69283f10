package main

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/postdate/postdate/client"
)

func TestPrintCaller(t *testing.T) {
	for want, caller := range map[string]client.Caller{
		"this node asks nobody for a key: everybody may do everything\n": {Tenant: "default"},
		"tenant    default\nscopes    sched:r,admin\nchannels  inbox:a,*:b\nkey       admin-key\nexpires   never\n": {
			Asked: true, Tenant: "default", Scopes: []string{"sched:r", "admin"}, Channels: []string{"inbox:a", "*:b"}, KeyID: "admin-key"},
		"tenant    acme\nscopes    none\nchannels  all\ntoken of  alice\nexpires   2020-01-31T09:30:00.000Z (expired)\n": {
			Asked: true, Tenant: "acme", Subject: "alice", ExpiresAt: time.Date(2020, 1, 31, 9, 30, 0, 0, time.UTC)},
	} {
		var out strings.Builder
		cmd := &cobra.Command{}
		cmd.SetOut(&out)
		if err := printCaller(cmd, &caller); err != nil || out.String() != want {
			t.Errorf("%+v is printed as\n%s%v, want\n%s", caller, out.String(), err, want)
		}
	}
}
