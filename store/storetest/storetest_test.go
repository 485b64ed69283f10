package storetest

import (
	"testing"

	"github.com/postdate/postdate/store"
)

func TestMem(t *testing.T) {
	open := func(*testing.T) store.Store { return NewMem(8) }
	Run(t, open)
	// Memory is as durable as the process: what is to be seen is that the checks
	// themselves hold.
	RunDurable(t, open, func(_ *testing.T, s store.Store) store.Store { return s })
}
