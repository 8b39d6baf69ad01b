//go:build !long

package e2e

// manyLayers is how many layers the image with many has besides its own two. Docker takes about half a second for each,
// which slows down what runs at the same time: make test-long has as many as the largest public images.
const manyLayers = 38
