package sim

import (
	"testing"

	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

// TestStore holds the model to the contract of every store.
func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return NewStore(8) })
}
