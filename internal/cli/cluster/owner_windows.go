package cluster

import "io/fs"

func giveTo(string, fs.FileInfo) {}
