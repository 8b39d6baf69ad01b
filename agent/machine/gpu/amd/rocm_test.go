package amd

import "testing"

func TestROCm(t *testing.T) {
	t.Parallel()
	for driver, want := range map[string]string{
		"6.3.6": "6.0", "6.7.0": "6.1", "6.8.5": "6.2", "6.10.5": "6.3", "6.12.12": "6.4", "6.14.14": "7.0",
		"6.16.6": "7.1", "6.16.13": "7.2", "6.18.3": "7.2", // newer: what is certain
		"6.16.2": "7.0", "6.16": "7.0", "6.2.4": "", "5.18.13": "", "kernel 6.17.0-35-generic": "", "": "",
	} {
		if got := ROCm(driver); got != want {
			t.Errorf("driver %q: ROCm %q, want %q", driver, got, want)
		}
	}
}
