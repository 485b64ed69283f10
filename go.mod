module github.com/postdate/postdate

go 1.26

require github.com/spaolacci/murmur3 v1.1.0 // indirect
