from price import price

assert price(100, 0.25) == 75
