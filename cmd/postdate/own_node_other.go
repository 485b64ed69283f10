//go:build !unix

package main

import (
	"os"
	"os/exec"
)

func detach(*exec.Cmd) {}

func peakMemory(*os.ProcessState) int64 { return 0 }

func allocated(info os.FileInfo) int64 { return info.Size() }
