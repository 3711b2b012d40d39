"""How good an explanation is: metrics of curves, of rankings, of what people marked; randomised models."""
