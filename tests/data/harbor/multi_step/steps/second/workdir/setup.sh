echo zwei > next.txt
