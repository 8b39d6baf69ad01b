//go:build long

package e2e

// manyLayers is how many layers the image with many has besides its own two.
const manyLayers = 118
