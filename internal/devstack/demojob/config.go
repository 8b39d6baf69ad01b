package demojob

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// config is read from the environment that every node of a cluster has, and from a few variables of the job's own.
type config struct {
	rank, world int
	master      string        // host
	port        int           // where the ranks meet: rank 0's port
	steps       int           // TRAIN_STEPS
	every       int           // TRAIN_LOG_EVERY: steps between progress lines
	pace        time.Duration // TRAIN_STEP_MS: shortest duration of a step, for watching it
	join        time.Duration // TRAIN_JOIN_SECONDS: how long ranks wait for each other
	// TRAIN_UNTIL: all ranks end after the step in which one of them finds this file; "" = no file.
	until string
}

func readConfig(env []string) (c config, err error) {
	vars := map[string]string{"NODE_RANK": "0", "NNODES": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
		"TRAIN_STEPS": "200", "TRAIN_LOG_EVERY": "20", "TRAIN_STEP_MS": "0", "TRAIN_JOIN_SECONDS": "120"}
	for _, kv := range env {
		if k, v, _ := strings.Cut(kv, "="); vars[k] != "" && v != "" {
			vars[k] = v
		} else if k == "TRAIN_UNTIL" {
			c.until = v
		}
	}
	num := func(key string, least, most int) int {
		n, convErr := strconv.Atoi(vars[key])
		if err == nil && (convErr != nil || n < least || n > most) {
			err = fmt.Errorf("%s=%q: want a number from %d to %d", key, vars[key], least, most)
		}
		return n
	}
	c = config{
		world: num("NNODES", 1, 4096), master: vars["MASTER_ADDR"], port: num("MASTER_PORT", 1, 65535),
		steps: num("TRAIN_STEPS", 1, 1e9), every: num("TRAIN_LOG_EVERY", 1, 1e9),
		until: c.until,
		pace:  time.Duration(num("TRAIN_STEP_MS", 0, 1e6)) * time.Millisecond,
		join:  time.Duration(num("TRAIN_JOIN_SECONDS", 1, 1e5)) * time.Second,
	}
	c.rank = num("NODE_RANK", 0, max(0, c.world-1))
	return c, err
}
