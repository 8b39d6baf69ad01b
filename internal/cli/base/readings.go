package base

import (
	"time"

	"github.com/spf13/pflag"
)

// Readings adds the flags of commands that show what GPUs did: how far back, and how fine.
func Readings(fs *pflag.FlagSet, last, step *time.Duration) {
	fs.DurationVar(last, "last", time.Hour, "how far back to look, at most 744h")
	fs.DurationVar(step, "step", 0, "time between readings (default: as fine as fits)")
}
