package model

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/money"
)

// TestFakingAFailurePaysLessThanNotice lets prices rise while a host has 24 hours of a run before it. It may withdraw
// with an hour's notice, or fake a failure and be rented out again at the new price: then it gives back the renter's
// last hour, its bond pays the other ranks until the loss is final, and it earns nothing until the relist lock ends.
func TestFakingAFailurePaysLessThanNotice(t *testing.T) {
	t.Parallel()
	const left = 24 * hour
	earns := func(ms, percent int64) money.Nano {
		return money.Share(money.CostOf(dearRate*money.Micro(percent)/100, ms), hostPPM)
	}
	hourCost := money.CostOf(dearRate, hour)
	back, held := fairness.Credit(fairness.Loss{
		Ended:    fairness.Suspension{Class: fairness.Proof, Culprits: []int{0}},
		LastHour: hourCost, Posted: hourCost, // of a rebooted host, for example: a renter could not have caused it
	})
	if held != 0 {
		t.Fatalf("%s of the credit waits", held)
	}
	credit := money.Share(back, hostPPM)
	standby := money.CostOf(dearRate, 125*second) // of one neighbour at the same price, until the loss is final
	var table strings.Builder
	for _, percent := range []int64{100, 110, 200, 500, 2000} {
		notice := earns(hour, 100) + earns(left-hour, percent)
		before := earns(left, percent) - credit
		after := earns(left-ms(fairness.RelistLock), percent) - credit - standby
		if after >= notice {
			t.Errorf("at %d %% of the price faking earns %s, notice %s", percent, after, notice)
		}
		n := func(v money.Nano) string { return fmt.Sprintf("%.0f", float64(v)/float64(money.Unit)) }
		fmt.Fprintf(&table, "| × %.1f | %s | %s | %s |\n", float64(percent)/100, n(notice), n(before), n(after))
	}
	if os.Getenv(envTables) != "" {
		t.Logf("price | notice | faked, before | faked, after\n%s", table.String())
	}
}
