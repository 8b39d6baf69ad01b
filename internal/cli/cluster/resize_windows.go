package cluster

import "os"

// notifyResize sends nothing: Windows has no signal for that. The remote terminal keeps the size that it began with.
func notifyResize(chan<- os.Signal) {}
