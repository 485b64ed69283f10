package poller

import (
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
)

// bounds sets each setting to its least allowed value, and to one less.
var bounds = map[string]struct{ least, less func(*Config) }{
	"Ahead":       {func(c *Config) { c.Ahead = c.Gather + 1 }, func(c *Config) { c.Ahead = c.Gather }},
	"Gather":      {func(c *Config) { c.Gather = 0 }, func(c *Config) { c.Gather = -1 }},
	"RetryAfter":  {func(c *Config) { c.RetryAfter = 1 }, func(c *Config) { c.RetryAfter = 0 }},
	"SweepEvery":  {func(c *Config) { c.SweepEvery = 1 }, func(c *Config) { c.SweepEvery = 0 }},
	"FindEvery":   {func(c *Config) { c.FindEvery = 1 }, func(c *Config) { c.FindEvery = 0 }},
	"LeaseMargin": {func(c *Config) { c.LeaseMargin = 1 }, func(c *Config) { c.LeaseMargin = 0 }},
	"JumpMax":     {func(c *Config) { c.JumpMax = 1 }, func(c *Config) { c.JumpMax = 0 }},
	"DrainStep":   {func(c *Config) { c.DrainStep = 1 }, func(c *Config) { c.DrainStep = 0 }},
	"DrainMax":    {func(c *Config) { c.DrainMax = c.DrainStep }, func(c *Config) { c.DrainMax = c.DrainStep - 1 }},
	"SettleGather": {
		func(c *Config) { c.SettleGather = 0 }, func(c *Config) { c.SettleGather = -1 },
	},
	"HandMax":  {func(c *Config) { c.HandMax = 8 }, func(c *Config) { c.HandMax = 7 }},
	"DoubtMax": {func(c *Config) { c.DoubtMax = 2 }, func(c *Config) { c.DoubtMax = 1 }},
	"HandBytesMax": {
		func(c *Config) { c.HandBytesMax = 4 * c.PayloadBytesMax }, func(c *Config) { c.HandBytesMax = 4*c.PayloadBytesMax - 1 },
	},
	"PayloadBytesMax": {func(c *Config) { c.PayloadBytesMax = 1 }, func(c *Config) { c.PayloadBytesMax = 0 }},
	"PageMax":         {func(c *Config) { c.PageMax = 1 }, func(c *Config) { c.PageMax = 0 }},
	"BatchMax":        {func(c *Config) { c.BatchMax = 1 }, func(c *Config) { c.BatchMax = 0 }},
	"BatchesMax":      {func(c *Config) { c.BatchesMax = 1 }, func(c *Config) { c.BatchesMax = 0 }},
	"SettleMax":       {func(c *Config) { c.SettleMax = 1 }, func(c *Config) { c.SettleMax = 0 }},
	"UnparkMax":       {func(c *Config) { c.UnparkMax = 1 }, func(c *Config) { c.UnparkMax = 0 }},
	"UnparksMax":      {func(c *Config) { c.UnparksMax = 1 }, func(c *Config) { c.UnparksMax = 0 }},
	"ProbeMin":        {func(c *Config) { c.ProbeMin = 1 }, func(c *Config) { c.ProbeMin = 0 }},
	"ProbeMax":        {func(c *Config) { c.ProbeMax = c.ProbeMin }, func(c *Config) { c.ProbeMax = c.ProbeMin - 1 }},
	"ParkMin":         {func(c *Config) { c.ParkMin = 1 }, func(c *Config) { c.ParkMin = 0 }},
	"Retry.MaxAttempts": {
		func(c *Config) { c.Retry.MaxAttempts = 1 }, func(c *Config) { c.Retry.MaxAttempts = 0 },
	},
	"Retry.MinBackoff": {
		func(c *Config) { c.Retry.MinBackoff = 1 }, func(c *Config) { c.Retry.MinBackoff = 0 },
	},
	"Retry.MaxBackoff": {
		func(c *Config) { c.Retry.MaxBackoff = c.Retry.MinBackoff },
		func(c *Config) { c.Retry.MaxBackoff = c.Retry.MinBackoff - 1 },
	},
	"Retry.MaxParked": {
		func(c *Config) { c.Retry.MaxParked = 1 }, func(c *Config) { c.Retry.MaxParked = 0 },
	},
}

// Each setting has a least value that is accepted. For less, the error names the setting and
// its value.
func TestValidate(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	for setting, test := range bounds {
		c := DefaultConfig()
		if test.least(&c); c.Validate() != nil {
			t.Errorf("the least %s: %v", setting, c.Validate())
		}
		test.less(&c)
		err := c.Validate()
		if postdate.KindOf(err) != postdate.KindInvalid || err == nil || !strings.Contains(err.Error(), "poller's "+setting+" is ") {
			t.Errorf("less than the least %s: %v", setting, err)
		}
	}
}

// A machine works with the least of all counts.
func TestTheLeastOfAllCounts(t *testing.T) {
	s := newShop(t, 2, func(c *Config) {
		c.HandMax, c.DoubtMax, c.PageMax, c.BatchMax, c.BatchesMax, c.SettleMax, c.UnparkMax, c.UnparksMax = 8, 2, 1, 1, 1, 1, 1, 1
		c.PayloadBytesMax, c.HandBytesMax = 1, 4
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
	})
	s.add(0, "x:a", 5, -ms)
	s.add(1, "x:b", 5, -ms)
	s.run(5*time.Second, func() {
		if inDoubt, _ := s.doubt(); inDoubt["x:a"] > 2 || inDoubt["x:b"] > 2 {
			t.Fatalf("a crash would mark %v", inDoubt)
		}
	})
	if s.arrived["x:a"] != 5 || s.arrived["x:b"] != 5 {
		t.Errorf("%v arrived", s.arrived)
	}
}
