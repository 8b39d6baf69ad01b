// Package realgpu holds what only a machine with an NVIDIA GPU can show: tests of the monitor on the driver's own
// library, and a program that loads a GPU. scripts/test-gpu builds and runs both.
package realgpu
